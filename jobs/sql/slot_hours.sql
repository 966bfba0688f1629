-- Sums what jobs held of their queues' quota: hours times slots, by period, resource and team, queue, user or job, from the launch of
-- each attempt to its end. `lost`: of failed attempts, what came after their last checkpoint; `starting`: of the others, until they ran;
-- `idle`: for how long GPUs were idle, spread evenly over the attempt.
-- Of removed jobs only the sum is known, which is taken for the time just before their end; nothing of it is lost.
-- Run by jobs/scheduling/hours.py (used), for pages, the API and budgets.
-- Cost: the attempts of these queues that lasted within the time, once for each period.
--
-- Parameters:
--   queues   bigint[]     whose jobs count
--   since    timestamptz  from when on
--   until    timestamptz  until when
--   now      timestamptz  until when what still runs has been running
--   seconds  float8       the length of a period
--   by       text         team, queue, user or job; columns that it does not name are null
WITH held AS (
    SELECT job.id AS job_id, job.name, job.team_id, job.queue_id, job.user_id, job.slots,
        attempt.launched_at AS began,
        COALESCE(attempt.ended_at, job.finished_at, %(now)s) AS ended,
        CASE WHEN attempt.reason IN ('failed', 'retry', 'start_timeout') THEN COALESCE(
            (SELECT max(written_at) FROM jobs_checkpoint AS saved WHERE saved.job_id = job.id AND saved.attempt = attempt.number),
            attempt.launched_at
        ) ELSE COALESCE(attempt.ended_at, job.finished_at, %(now)s) END AS lost_from,
        CASE WHEN attempt.reason IN ('failed', 'retry', 'start_timeout') THEN attempt.launched_at
            ELSE COALESCE(attempt.running_at, attempt.ended_at, job.finished_at, %(now)s)
        END AS ran_from,
        attempt.idle_seconds
    FROM jobs_attempt AS attempt
    JOIN jobs_job AS job ON job.id = attempt.job_id
    WHERE job.queue_id = ANY(%(queues)s)
        AND attempt.launched_at < %(until)s
        AND (attempt.ended_at > %(since)s OR (attempt.ended_at IS NULL AND attempt.number = job.attempt))
    UNION ALL
    SELECT id, name, team_id, queue_id, user_id, slots,
        finished_at - held_seconds * interval '1 second', finished_at, finished_at, finished_at - held_seconds * interval '1 second', 0
    FROM jobs_removedjob
    WHERE queue_id = ANY(%(queues)s) AND finished_at > %(since)s
        AND finished_at - held_seconds * interval '1 second' < %(until)s
), periods AS (
    SELECT begins, LEAST(begins + %(seconds)s * interval '1 second', %(until)s) AS ends
    FROM generate_series(
        %(since)s::timestamptz, %(until)s::timestamptz - interval '1 microsecond', %(seconds)s * interval '1 second'
    ) AS begins
)
SELECT begins, queue.resource, held.team_id,
    CASE WHEN %(by)s IN ('queue', 'job') THEN queue_id END AS of_queue,
    CASE WHEN %(by)s IN ('user', 'job') THEN user_id END AS of_user,
    CASE WHEN %(by)s = 'job' THEN job_id END AS of_job,
    CASE WHEN %(by)s = 'job' THEN held.name ELSE '' END AS of_name,
    sum(slots * extract(epoch FROM LEAST(ended, ends) - GREATEST(began, begins))) / 3600 AS hours,
    sum(slots * GREATEST(0, extract(epoch FROM LEAST(ended, ends) - GREATEST(lost_from, begins)))) / 3600 AS lost,
    sum(slots * GREATEST(0, extract(epoch FROM LEAST(ran_from, ends) - GREATEST(began, begins)))) / 3600 AS starting,
    sum(COALESCE(idle_seconds * extract(epoch FROM LEAST(ended, ends) - GREATEST(began, begins)) / NULLIF(extract(epoch FROM ended - began), 0), 0))
        / 3600 AS idle
FROM periods
JOIN held ON began < ends AND ended > begins
JOIN queues_queue AS queue ON queue.id = queue_id
GROUP BY 1, 2, 3, 4, 5, 6, 7
ORDER BY 1, 2, 3, 4, 5, 6
