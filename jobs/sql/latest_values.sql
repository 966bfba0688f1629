-- For each job the first of some series that its rank 0 reports, with the newest value.
-- Run by jobs/analysis/metrics.py (latest), once for a list of jobs.
-- Cost: one step into the index series_by_attempt for each job and name.
--
-- Parameters:
--   jobs      bigint[]  ids of the jobs
--   attempts  int[]     the attempt of each
--   names     text[]    the series, in order of preference
SELECT DISTINCT ON (j.id) j.id, c.name, c.values[cardinality(c.values)]
FROM unnest(%(jobs)s::bigint[], %(attempts)s::int[]) AS j(id, attempt)
CROSS JOIN unnest(%(names)s::text[]) WITH ORDINALITY AS n(name, place)
CROSS JOIN LATERAL (
    SELECT name, values FROM jobs_metricchunk
    WHERE job_id = j.id AND attempt = j.attempt AND name = n.name AND rank = 0 ORDER BY id DESC LIMIT 1
) c ORDER BY j.id, n.place
