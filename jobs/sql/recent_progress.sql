-- How far each job is by one of its series, and how fast its recent steps were: the job, the last step, the series' last value,
-- seconds and steps between the first and the last of the chunks that are read, the furthest step that rank 0 reported, and for
-- how long nothing was reported.
-- Run by jobs/analysis/progress.py (progress), once or twice for a list or page of jobs.
-- Cost: one step into the index series_by_attempt for each job, and a bounded number of chunks.
--
-- Parameters:
--   jobs      bigint[]  ids of the jobs
--   attempts  int[]     the attempt of each
--   names     text[]    the series to look at of each
--   chunks    int       newest ones of rank 0 to read for each job
SELECT j.id, (array_agg(c.last_step ORDER BY c.id DESC))[1], (array_agg(c.total ORDER BY c.id DESC))[1],
       (array_agg(c.last_at ORDER BY c.id DESC))[1] - (array_agg(c.first_at ORDER BY c.id))[1],
       (array_agg(c.last_step ORDER BY c.id DESC))[1] - (array_agg(c.first_step ORDER BY c.id))[1], max(j.furthest),
       extract(epoch FROM now())::float8 - max(c.last_at)
FROM (
    SELECT a.id, a.attempt, a.name, r.step AS furthest
    FROM unnest(%(jobs)s::bigint[], %(attempts)s::int[], %(names)s::text[]) AS a(id, attempt, name)
    LEFT JOIN jobs_rank r ON r.job_id = a.id AND r.attempt = a.attempt AND r.rank = 0
) j CROSS JOIN LATERAL (
    SELECT id, times[1] AS first_at, steps[1] AS first_step, times[cardinality(times)] AS last_at,
           steps[cardinality(steps)] AS last_step, values[cardinality(values)] AS total
    FROM jobs_metricchunk WHERE job_id = j.id AND attempt = j.attempt AND name = j.name AND rank = 0
    ORDER BY id DESC LIMIT %(chunks)s
) c GROUP BY j.id
