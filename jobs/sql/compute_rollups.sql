-- Compute buckets of the narrowest width from their chunks: the spread over the ranks, and the worst ranks.
-- Run by jobs/analysis/rollups.py (roll_up), in the transaction of a turn, without nested loops.
-- Guard: computing a bucket twice gives the same row.
-- One value per rank and bucket, its mean, so that ranks which report more often do not weigh more. Infinite, undefined and
-- absurd values are in no number, but a rank that reports one is the worst.
--
-- Parameters:
--   ids    bigint[]     of the buckets
--   names  text[]       of their series
--   sides  int[]        of each name: 1 if high values are bad, -1 if low ones are, 0 if either may be
--   width  int          of the buckets, in seconds
--   worst  int          how many of the worst ranks are kept
--   least  float8       a smaller value counts as 0
--   most   float8       a larger value counts as infinite
--   now    timestamptz  time of the computation
WITH due AS (
    SELECT r.id, r.job_id, r.attempt, r.name, r.begins, n.side
    FROM jobs_metricrollup r JOIN unnest(%(names)s::text[], %(sides)s::int[]) AS n(name, side) USING (name)
    WHERE r.id = ANY(%(ids)s)
), needed AS (
    SELECT lower(one) AS low, upper(one) AS high
    FROM (SELECT range_agg(chunks) AS all_chunks FROM jobs_metricrollup WHERE id = ANY(%(ids)s)) r, unnest(all_chunks) AS one
), points AS (
    SELECT c.job_id, c.attempt, c.name, c.rank, floor(p.at / %(width)s)::bigint * %(width)s AS begins, p.step,
        CASE WHEN abs(p.value) >= %(least)s AND abs(p.value) <= %(most)s THEN p.value WHEN abs(p.value) < %(least)s THEN 0 END AS value
    FROM needed JOIN jobs_metricchunk c ON c.id >= needed.low AND c.id < needed.high
    JOIN (SELECT DISTINCT job_id, attempt, name FROM due) mine USING (job_id, attempt, name)
    CROSS JOIN LATERAL unnest(c.times, c.steps, c.values) AS p(at, step, value)
), means AS MATERIALIZED (
    SELECT d.id, d.side, p.rank, avg(p.value) AS mean, min(p.value) AS low, max(p.value) AS high, max(p.step) AS step,
        bool_and(p.step IS NOT NULL) AS has_step, bool_or(p.value IS NULL) AS is_odd
    FROM points p JOIN due d USING (job_id, attempt, name, begins) GROUP BY d.id, d.side, p.rank
), spread AS MATERIALIZED (
    SELECT id, count(mean) AS ranks, min(low) AS low, max(high) AS high, CASE WHEN bool_and(has_step) THEN max(step) END AS step,
        percentile_cont(ARRAY[0.05, 0.5, 0.95]) WITHIN GROUP (ORDER BY mean) AS at
    FROM means GROUP BY id
), far AS (
    SELECT m.id, m.rank, row_number() OVER (PARTITION BY m.id ORDER BY m.is_odd DESC, CASE m.side
        WHEN 0 THEN abs(m.mean - s.at[2]) ELSE m.side * (m.mean - s.at[2]) END DESC, m.rank) AS place
    FROM means m JOIN spread s USING (id)
    WHERE m.is_odd OR CASE m.side WHEN 0 THEN m.mean <> s.at[2] ELSE m.side * (m.mean - s.at[2]) > 0 END
), worst AS (
    SELECT id, array_agg(rank ORDER BY place) AS ranks FROM far WHERE place <= %(worst)s GROUP BY id
)
UPDATE jobs_metricrollup r SET ranks = s.ranks, step = s.step, low = s.low, p5 = s.at[1], median = s.at[2], p95 = s.at[3],
    high = s.high, worst = COALESCE(w.ranks, '{}'), rolled_at = %(now)s
FROM spread s LEFT JOIN worst w USING (id) WHERE r.id = s.id
