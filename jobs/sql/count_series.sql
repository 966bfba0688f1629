-- How many series, one per name and rank, an attempt has; counted up to a limit.
-- Run by jobs/analysis/metrics.py (series), before thinned_points.sql.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
--   all      bool    all names
--   names    text[]  otherwise these
--   limit    int
SELECT count(*) FROM (
    SELECT DISTINCT name, rank FROM jobs_metricchunk
    WHERE job_id = %(job)s AND attempt = %(attempt)s AND (%(all)s OR name = ANY(%(names)s)) LIMIT %(limit)s
) pairs
