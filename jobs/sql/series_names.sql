-- The names of the series that an attempt reported, sorted.
-- Run by jobs/analysis/metrics.py (names), for pages and the API.
-- Cost: one step into the index series_by_attempt for each name.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
WITH RECURSIVE found(name) AS (
    (SELECT name FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s ORDER BY name LIMIT 1)
    UNION ALL
    SELECT (SELECT c.name FROM jobs_metricchunk c
            WHERE c.job_id = %(job)s AND c.attempt = %(attempt)s AND c.name > found.name ORDER BY c.name LIMIT 1)
    FROM found WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL
