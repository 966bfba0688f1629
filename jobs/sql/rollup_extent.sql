-- The begins of the first and the last bucket of some series of an attempt, in seconds since the epoch; null if there are none.
-- Run by jobs/analysis/rollups.py (extent), for charts.
-- Cost: two steps into the index of buckets for each name.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
--   names    text[]
--   width    int     of the buckets, in seconds
SELECT min(first.begins), max(last.begins) FROM unnest(%(names)s::text[]) AS n(name) CROSS JOIN LATERAL (
    SELECT begins FROM jobs_metricrollup WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name AND width = %(width)s
        AND rolled_at IS NOT NULL ORDER BY begins LIMIT 1
) first CROSS JOIN LATERAL (
    SELECT begins FROM jobs_metricrollup WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name AND width = %(width)s
        AND rolled_at IS NOT NULL ORDER BY begins DESC LIMIT 1
) last
