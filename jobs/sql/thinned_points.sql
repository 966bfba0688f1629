-- The points of an attempt's series, thinned: name, rank, time, step, value.
-- Run by jobs/analysis/metrics.py (series), for the API. Pages use spread_points.sql, whose cost is bounded.
-- Of a long series every k-th chunk, then every k-th point, and always the last of each, so that a chart ends at the current
-- state.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
--   all      bool    all names
--   names    text[]  otherwise these
--   chunks   int     about as many of each series are read
--   points   int     about as many of each series are returned
WITH numbered AS (
    SELECT id, name, rank, times, steps, values,
           row_number() OVER (PARTITION BY name, rank ORDER BY id DESC) AS back,
           count(*) OVER (PARTITION BY name, rank) AS total
    FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s AND (%(all)s OR name = ANY(%(names)s))
), points AS (
    SELECT name, rank, at, step, value,
           row_number() OVER (PARTITION BY name, rank ORDER BY at DESC, id DESC) AS back,
           count(*) OVER (PARTITION BY name, rank) AS total
    FROM numbered, unnest(times, steps, values) AS p(at, step, value)
    WHERE back = 1 OR back %% GREATEST(1, CEIL(total / %(chunks)s::numeric)::bigint) = 0
)
SELECT name, rank, to_timestamp(at), step, value FROM points
WHERE back = 1 OR back %% GREATEST(1, CEIL(total / %(points)s::numeric)::bigint) = 0
ORDER BY name, rank, at, back DESC
