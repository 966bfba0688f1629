-- Between which ids the chunks of a window lie, the higher one excluded; null if none has been read yet.
-- Run by jobs/analysis/rollups.py (chunks), for charts.
-- Cost: ids rise with time but for late chunks, so the first and the last buckets of a very long window are enough.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
--   names    text[]
--   width    int     of the narrowest buckets, in seconds
--   begins   bigint  the window's begin, in seconds since the epoch
--   ends     bigint  its end, excluded
--   most     int     buckets of each series read at either end
SELECT min(low), max(high) FROM unnest(%(names)s::text[]) AS n(name) CROSS JOIN LATERAL (
    SELECT min(lower(chunks)) AS low, max(upper(chunks)) AS high FROM (
        (SELECT chunks FROM jobs_metricrollup WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name
            AND width = %(width)s AND begins >= %(begins)s AND begins < %(ends)s ORDER BY begins LIMIT %(most)s)
        UNION ALL
        (SELECT chunks FROM jobs_metricrollup WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name
            AND width = %(width)s AND begins >= %(begins)s AND begins < %(ends)s ORDER BY begins DESC LIMIT %(most)s)
    ) AS both_ends
) of_series
