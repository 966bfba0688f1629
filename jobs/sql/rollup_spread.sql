-- The spread of some series over their ranks within a window, by series and joined buckets, oldest first.
-- Run by jobs/analysis/rollups.py (spread), for charts.
-- Numbers are null where no rank reported a finite value.
-- Cost: one range of the index of buckets for each name; the width is chosen so that it has a bounded number of rows.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
--   names    text[]
--   width    int     of the buckets that are read, in seconds
--   joined   int     of those that are returned, a multiple of it
--   begins   bigint  the window's begin, in seconds since the epoch
--   ends     bigint  its end, excluded
SELECT name, begins / %(joined)s * %(joined)s AS start, CASE WHEN bool_and(step IS NOT NULL) THEN max(step) END, min(low),
    sum(p5 * ranks) / NULLIF(sum(ranks), 0), sum(median * ranks) / NULLIF(sum(ranks), 0), sum(p95 * ranks) / NULLIF(sum(ranks), 0),
    max(high)
FROM jobs_metricrollup
WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = ANY(%(names)s) AND width = %(width)s
    AND begins >= %(begins)s AND begins < %(ends)s AND rolled_at IS NOT NULL
GROUP BY name, start ORDER BY name, start
