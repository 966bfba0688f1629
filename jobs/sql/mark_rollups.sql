-- Mark the buckets that some chunks touch as due, and note the chunks' ids in them.
-- Run by jobs/analysis/rollups.py (roll_up), in the transaction of a turn.
-- Guard: the turn holds the row of the position read so far, so each chunk marks its buckets once.
--
-- Parameters:
--   read      bigint  id of the last chunk that was read before
--   end       bigint  id of the last one to read now
--   width     int     of the narrowest buckets, in seconds
--   earliest  int     seconds before the job's submission; earlier points are in no bucket
INSERT INTO jobs_metricrollup (job_id, attempt, name, width, begins, ranks, worst, chunks, is_due)
SELECT job_id, attempt, name, %(width)s, bucket * %(width)s, 0, '{}', int8multirange(int8range(min(id), max(id), '[]')), true
FROM (
    SELECT c.*, extract(epoch FROM j.created_at) - %(earliest)s AS earliest
    FROM jobs_metricchunk c JOIN jobs_job j ON j.id = c.job_id WHERE c.id > %(read)s AND c.id <= %(end)s
) m CROSS JOIN LATERAL (SELECT DISTINCT floor(at / %(width)s)::bigint FROM unnest(times) AS t(at) WHERE at > earliest) AS b(bucket)
GROUP BY job_id, attempt, name, bucket ORDER BY job_id, attempt, name, bucket
ON CONFLICT (job_id, attempt, name, width, begins) DO UPDATE SET is_due = true,
    chunks = jobs_metricrollup.chunks + excluded.chunks
