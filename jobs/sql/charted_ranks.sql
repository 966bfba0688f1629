-- Which ranks of each series a chart draws, in order of preference: the preferred ones that reported it, then ranks spread
-- evenly from its lowest to its highest, then its lowest ones, until there are enough. A rank may come more than once.
-- Run by jobs/analysis/metrics.py (some_series), once for a page.
-- Cost: one step into the index series_by_attempt for each rank looked for, so 1,024 ranks cost no more than 64.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
--   names    text[]
--   first    int[]   preferred ranks
--   spread   int     ranks spread evenly
--   most     int     lowest ranks
WITH RECURSIVE names AS (
    SELECT n.name, low.rank AS low, high.rank AS high
    FROM unnest(%(names)s::text[]) AS n(name)
    CROSS JOIN LATERAL (
        SELECT rank FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name
        ORDER BY rank LIMIT 1
    ) low CROSS JOIN LATERAL (
        SELECT rank FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name
        ORDER BY rank DESC LIMIT 1
    ) high
), lowest(name, rank, place) AS (
    SELECT name, low, 0 FROM names
    UNION ALL
    SELECT name, (SELECT c.rank FROM jobs_metricchunk c
                  WHERE c.job_id = %(job)s AND c.attempt = %(attempt)s AND c.name = lowest.name
                      AND c.rank > lowest.rank ORDER BY c.rank LIMIT 1), place + 1
    FROM lowest WHERE rank IS NOT NULL AND place + 1 < %(most)s
), found(name, rank, kind, place) AS (
    SELECT n.name, w.rank, 0, w.place FROM names n
    CROSS JOIN unnest(%(first)s::int[]) WITH ORDINALITY AS w(rank, place)
    CROSS JOIN LATERAL (
        SELECT FROM jobs_metricchunk c
        WHERE c.job_id = %(job)s AND c.attempt = %(attempt)s AND c.name = n.name AND c.rank = w.rank LIMIT 1
    ) reported
    UNION ALL
    SELECT n.name, c.rank, 1, t.place FROM names n
    CROSS JOIN generate_series(0, %(spread)s - 1) AS t(place)
    CROSS JOIN LATERAL (
        SELECT rank FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name
            AND rank >= n.low + (n.high - n.low) * t.place / GREATEST(1, %(spread)s - 1) ORDER BY rank LIMIT 1
    ) c
    UNION ALL
    SELECT name, rank, 2, place FROM lowest WHERE rank IS NOT NULL
)
SELECT name, rank FROM found ORDER BY name, kind, place
