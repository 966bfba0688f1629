-- Sum up the buckets around some computed ones into wider ones; return the ids of those.
-- Run by jobs/analysis/rollups.py (roll_up), in the transaction of a turn, once for each width but the narrowest.
-- Guard: computing a bucket twice gives the same row.
-- A wider bucket's worst ranks are those that most of its parts count among their worst.
--
-- Parameters:
--   ids     bigint[]     of the computed buckets
--   narrow  int          their width, in seconds
--   wide    int          the width of the wider ones
--   worst   int          how many of the worst ranks are kept
--   now     timestamptz  time of the computation
WITH touched AS (
    SELECT DISTINCT job_id, attempt, name, begins / %(wide)s * %(wide)s AS start FROM jobs_metricrollup WHERE id = ANY(%(ids)s)
), parts AS (
    SELECT t.start, r.* FROM touched t JOIN jobs_metricrollup r ON r.job_id = t.job_id AND r.attempt = t.attempt
        AND r.name = t.name AND r.width = %(narrow)s AND r.begins >= t.start AND r.begins < t.start + %(wide)s
    WHERE r.rolled_at IS NOT NULL
), far AS (
    SELECT job_id, attempt, name, start, rank, row_number() OVER (
        PARTITION BY job_id, attempt, name, start ORDER BY count(*) DESC, min(place), rank) AS place
    FROM parts, unnest(worst) WITH ORDINALITY AS w(rank, place) GROUP BY job_id, attempt, name, start, rank
), worst AS (
    SELECT job_id, attempt, name, start, array_agg(rank ORDER BY place) AS worst_ranks FROM far WHERE place <= %(worst)s
    GROUP BY job_id, attempt, name, start
)
INSERT INTO jobs_metricrollup (job_id, attempt, name, width, begins, ranks, step, low, p5, median, p95, high, worst, chunks,
    is_due, rolled_at)
SELECT p.job_id, p.attempt, p.name, %(wide)s, p.start, max(p.ranks), CASE WHEN bool_and(p.step IS NOT NULL) THEN max(p.step) END,
    min(p.low), sum(p.p5 * p.ranks) / NULLIF(sum(p.ranks), 0), sum(p.median * p.ranks) / NULLIF(sum(p.ranks), 0),
    sum(p.p95 * p.ranks) / NULLIF(sum(p.ranks), 0), max(p.high), COALESCE(w.worst_ranks, '{}'), '{}', false, %(now)s
FROM parts p LEFT JOIN worst w USING (job_id, attempt, name, start)
GROUP BY p.job_id, p.attempt, p.name, p.start, w.worst_ranks ORDER BY 1, 2, 3, 5
ON CONFLICT (job_id, attempt, name, width, begins) DO UPDATE SET ranks = excluded.ranks, step = excluded.step,
    low = excluded.low, p5 = excluded.p5, median = excluded.median, p95 = excluded.p95, high = excluded.high,
    worst = excluded.worst, rolled_at = excluded.rolled_at
RETURNING id
