-- Segments with lines after a cursor, in order of time, and the state of their job.
-- Run by jobs/logs/segments.py (unread), about once a second for each open page or follower of a running job.
-- Guard: one statement sees one snapshot: if it finds a job finished, it finds every line from before its end.
-- Returns one row without a segment if there is none, and none if the job is gone.
--
-- Parameters:
--   job       bigint    id of the job
--   attempt   int
--   rank      int       only this rank's lines, -1 for those of no rank; null for all
--   role      text      only this replica's lines, by its role; null for all
--   index     int       and its number within the role
--   floor     bigint    ids up to this one are settled and were read
--   replicas  bigint[]  the cursor's streams: replicas
--   ranks     int[]     the cursor's streams: ranks
--   lines     bigint[]  the cursor's streams: next lines
--   limit     int       segments
-- Fragments:
--   {columns}    parts/segment_columns.sql
--   {of_source}  parts/segments_of_source.sql
SELECT j.attempt, j.finished_at IS NOT NULL, j.logs_collected_at, {columns}
FROM jobs_job j LEFT JOIN LATERAL (
    SELECT s.* FROM jobs_logsegment s
    LEFT JOIN unnest(%(replicas)s::bigint[], %(ranks)s::int[], %(lines)s::bigint[]) AS seen(replica_id, rank, line)
        ON seen.replica_id = s.replica_id AND seen.rank = s.rank
    WHERE s.job_id = j.id AND s.attempt = %(attempt)s AND s.id > %(floor)s
        AND {of_source} AND s.first_line + s.lines > COALESCE(seen.line, 0)
    ORDER BY s.first_at, s.id LIMIT %(limit)s
) s ON true
WHERE j.id = %(job)s
ORDER BY s.first_at, s.id
