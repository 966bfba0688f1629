-- Names of the series that a job reported in any attempt.
-- Run by jobs/ingest/replica_rows.py (known_names), once per process and job.
-- Cost: one step into the index series_by_attempt for each attempt and name, however many chunks there are.
--
-- Parameters:
--   job  bigint  id of the job
WITH RECURSIVE found(attempt, name) AS (
    (SELECT attempt, name FROM jobs_metricchunk WHERE job_id = %(job)s ORDER BY attempt, name LIMIT 1)
    UNION ALL
    SELECT next.attempt, next.name FROM found CROSS JOIN LATERAL (
        SELECT c.attempt, c.name FROM jobs_metricchunk c
        WHERE c.job_id = %(job)s AND (c.attempt, c.name) > (found.attempt, found.name)
        ORDER BY c.attempt, c.name LIMIT 1
    ) next
)
SELECT DISTINCT name FROM found
