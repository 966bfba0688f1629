-- The points of given series, thinned at a bounded cost: name, rank, time, step, value.
-- Run by jobs/analysis/metrics.py (lines), for charts; once with and once without a window.
-- Of a short series every chunk; of a long one chunks spread evenly over the ids between its first and its last, each one step
-- into the index series_by_attempt. Then every k-th point, and always the last.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
--   names    text[]  the series: names
--   ranks    int[]   the series: ranks
--   chunks   int     of each series are read; one with more is long
--   points   int     about as many of each series are returned
--   low      bigint  the window's first chunk, by id
--   high     bigint  the window's last chunk, by id
--   begins   float8  the window's begin, in seconds since the epoch
--   ends     float8  its end
-- Fragments:
--   {within}  the condition on low and high; without a window it is left out, since it tempts Postgres to walk through the ids
--             of all series
WITH ends AS (
    SELECT p.name, p.rank, low.id AS low, high.id AS high, few.total > %(chunks)s AS is_long
    FROM unnest(%(names)s::text[], %(ranks)s::int[]) AS p(name, rank)
    CROSS JOIN LATERAL (
        SELECT id FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s
            AND name = p.name AND rank = p.rank{within} ORDER BY id LIMIT 1
    ) low CROSS JOIN LATERAL (
        SELECT id FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s
            AND name = p.name AND rank = p.rank{within} ORDER BY id DESC LIMIT 1
    ) high CROSS JOIN LATERAL (
        SELECT count(*) AS total FROM (
            SELECT FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s
                AND name = p.name AND rank = p.rank{within} LIMIT %(chunks)s + 1
        ) part
    ) few
), chosen AS (
    SELECT c.id FROM ends e CROSS JOIN LATERAL (
        SELECT id FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s
            AND name = e.name AND rank = e.rank{within} ORDER BY id LIMIT %(chunks)s
    ) c WHERE NOT e.is_long
    UNION
    SELECT c.id FROM ends e CROSS JOIN generate_series(0, %(chunks)s - 1) AS t(place) CROSS JOIN LATERAL (
        SELECT id FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = e.name
            AND rank = e.rank AND id >= e.low + (e.high - e.low) * t.place / GREATEST(1, %(chunks)s - 1)
        ORDER BY id LIMIT 1
    ) c WHERE e.is_long
), points AS (
    SELECT c.name, c.rank, p.at, p.step, p.value,
           row_number() OVER (PARTITION BY c.name, c.rank ORDER BY p.at DESC, c.id DESC) AS back,
           count(*) OVER (PARTITION BY c.name, c.rank) AS total
    FROM jobs_metricchunk c, unnest(c.times, c.steps, c.values) AS p(at, step, value)
    WHERE c.id = ANY(ARRAY(SELECT id FROM chosen)) AND p.at >= %(begins)s AND p.at <= %(ends)s
)
SELECT name, rank, to_timestamp(at), step, value FROM points
WHERE back = 1 OR back %% GREATEST(1, CEIL(total / %(points)s::numeric)::bigint) = 0
ORDER BY name, rank, at, back DESC
