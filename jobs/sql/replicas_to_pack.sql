-- Replicas with segments to pack: those whose attempt is over, and those with very many.
-- Run by jobs/logs/compaction.py (waiting), once per turn of packing.
-- Cost: the partial index segment_to_pack holds only segments that are not packed and have text.
--
-- Parameters:
--   every   int          segments that a replica has before it is packed while it runs
--   open    text[]       phases of a job whose newest attempt is not over
--   before  timestamptz  an attempt that is over has no newer line than this
--   limit   int          replicas per turn
SELECT s.replica_id FROM jobs_logsegment s JOIN jobs_job j ON j.id = s.job_id
WHERE NOT s.is_packed AND s.path <> ''
GROUP BY s.replica_id, s.attempt, j.attempt, j.phase
HAVING count(*) >= %(every)s OR ((s.attempt < j.attempt OR NOT j.phase = ANY(%(open)s)) AND max(s.last_at) < %(before)s)
ORDER BY s.replica_id LIMIT %(limit)s
