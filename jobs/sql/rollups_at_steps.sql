-- The begins of the last bucket below a step and of the first that reaches another one, in seconds since the epoch.
-- Run by jobs/analysis/rollups.py (at_steps), for charts over steps.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
--   names    text[]
--   width    int     of the buckets, in seconds
--   low      bigint  the first step
--   high     bigint  the last step
SELECT max(begins) FILTER (WHERE step < %(low)s), min(begins) FILTER (WHERE step >= %(high)s) FROM jobs_metricrollup
WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = ANY(%(names)s) AND width = %(width)s
