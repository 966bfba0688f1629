-- When the first of some series of an attempt began, in seconds since the epoch; null if none has.
-- Run by jobs/analysis/metrics.py (began), for charts.
-- Cost: one step into the index series_by_attempt for each name, to the first chunk of its lowest rank.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
--   names    text[]
SELECT min(first.at) FROM unnest(%(names)s::text[]) AS n(name) CROSS JOIN LATERAL (
    SELECT times[1] AS at FROM jobs_metricchunk
    WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name ORDER BY rank, id LIMIT 1
) first
