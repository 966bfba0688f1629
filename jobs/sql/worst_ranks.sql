-- The worst ranks of each of the last buckets before a time, by series.
-- Run by jobs/analysis/rollups.py (worst), for charts.
-- Cost: one range of the index of buckets for each name.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
--   names    text[]
--   width    int     of the buckets, in seconds
--   ends     bigint  the time, in seconds since the epoch
--   limit    int     buckets of each series
SELECT n.name, r.worst FROM unnest(%(names)s::text[]) AS n(name) CROSS JOIN LATERAL (
    SELECT worst FROM jobs_metricrollup
    WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name AND width = %(width)s AND begins < %(ends)s
        AND rolled_at IS NOT NULL
    ORDER BY begins DESC LIMIT %(limit)s
) r
