-- The next line's number in each stream of an attempt: replica, rank, line.
-- Run by jobs/logs/segments.py (ends), when a reader begins at the end of a log.
-- Cost: one step into the index of (replica, rank, first line) for each stream, however long the log is.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
--   rank     int     only this rank's stream, -1 for those of no rank; null for all
--   role     text    only this replica's streams, by its role; null for all
--   index    int     and its number within the role
SELECT r.id, n.rank, s.line FROM jobs_replica r
CROSS JOIN LATERAL (SELECT rank FROM jobs_rank WHERE replica_id = r.id UNION ALL SELECT -1) n
CROSS JOIN LATERAL (
    SELECT first_line + lines AS line FROM jobs_logsegment
    WHERE replica_id = r.id AND rank = n.rank ORDER BY first_line DESC LIMIT 1
) s
WHERE r.job_id = %(job)s AND r.attempt = %(attempt)s AND (%(rank)s::int IS NULL OR n.rank = %(rank)s)
    AND (%(role)s::text IS NULL OR (r.role = %(role)s AND r.index = %(index)s))
