-- Writes for each queue that shares quota how many slots its jobs held lately: an average in which a moment counts half as much
-- after each half-life. A sum over attempts each time, so that what is written cannot drift.
-- Run by jobs/control/recent_use.py (note).
-- Cost: the attempts of these queues of the last eight half-lives.
--
-- Parameters:
--   now        timestamptz
--   half_life  float8       seconds
INSERT INTO queues_recentuse (queue_id, slots, noted_at)
SELECT queue.id, COALESCE(sum(held.slots * (
        power(0.5::float8, extract(epoch FROM %(now)s - held.ended)::float8 / %(half_life)s::float8)
        - power(0.5::float8, extract(epoch FROM %(now)s - held.began)::float8 / %(half_life)s::float8)
    )), 0), %(now)s
FROM queues_queue AS queue LEFT JOIN (
    SELECT job.queue_id, job.slots, attempt.launched_at AS began,
        LEAST(COALESCE(attempt.ended_at, job.finished_at, %(now)s), %(now)s) AS ended
    FROM jobs_attempt AS attempt JOIN jobs_job AS job ON job.id = attempt.job_id
    WHERE attempt.launched_at < %(now)s AND (
        attempt.ended_at > %(now)s - 8 * %(half_life)s * interval '1 second'
        OR (attempt.ended_at IS NULL AND attempt.number = job.attempt)
    )
    UNION ALL
    SELECT queue_id, slots, finished_at - held_seconds * interval '1 second', finished_at
    FROM jobs_removedjob
    WHERE finished_at > %(now)s - 8 * %(half_life)s * interval '1 second'
) AS held ON held.queue_id = queue.id AND held.ended > held.began
WHERE queue.flavor_id IS NOT NULL
GROUP BY queue.id
ON CONFLICT (queue_id) DO UPDATE SET slots = excluded.slots, noted_at = excluded.noted_at
