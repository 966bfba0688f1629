-- How long jobs waited for quota, the median of each queue: queue, seconds, jobs.
-- Run by jobs/analysis/overview.py (median_waits), for the overview.
-- Cost: the jobs of these queues that were admitted lately; a row each of the index on their queue.
--
-- Parameters:
--   queues  bigint[]     ids of the queues
--   since   timestamptz  jobs that were admitted since then
SELECT queue_id, percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM admitted_at - created_at))::float8, count(*)::int
FROM jobs_job WHERE queue_id = ANY(%(queues)s) AND admitted_at >= %(since)s AND attempt <= 1
GROUP BY queue_id
