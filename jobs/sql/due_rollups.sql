-- Buckets to compute, oldest first: id, series, and the ids of their chunks.
-- Run by jobs/analysis/rollups.py (roll_up), in the transaction of a turn.
-- Cost: the partial index rollup_due holds only buckets that are due.
--
-- Parameters:
--   over   float8       begin of the last bucket that is over, in seconds since the epoch
--   again  timestamptz  a bucket computed later than this waits
--   limit  int          buckets
SELECT id, name, chunks FROM jobs_metricrollup
WHERE is_due AND begins <= %(over)s AND (rolled_at IS NULL OR rolled_at <= %(again)s) ORDER BY begins LIMIT %(limit)s
