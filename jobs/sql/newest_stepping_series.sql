-- For each job the one of some series of which rank 0 reported a step last, if there is one.
-- Run by jobs/analysis/progress.py (progress), for jobs that report their total only now and then.
-- Cost: one step into the index series_by_attempt for each job and name.
--
-- Parameters:
--   jobs      bigint[]  ids of the jobs
--   attempts  int[]     the attempt of each
--   names     text[]    the series
SELECT DISTINCT ON (j.id) j.id, n.name FROM unnest(%(jobs)s::bigint[], %(attempts)s::int[]) AS j(id, attempt)
CROSS JOIN unnest(%(names)s::text[]) AS n(name) CROSS JOIN LATERAL (
    SELECT id, steps FROM jobs_metricchunk WHERE job_id = j.id AND attempt = j.attempt AND name = n.name AND rank = 0
    ORDER BY id DESC LIMIT 1
) c WHERE c.steps[cardinality(c.steps)] IS NOT NULL ORDER BY j.id, c.id DESC
