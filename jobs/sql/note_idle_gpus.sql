-- Adds to attempts that last for how long GPUs of their ranks have been idle since that was done last. Of two runs at once the second
-- adds nothing. A GPU that is in use again by now is not counted for the time since the last run.
-- Run by jobs/control/idle_gpus.py (note).
-- Cost: the index rank_to_look_at, which has only ranks whose GPU is idle or has errors.
--
-- Parameters:
--   now    timestamptz
--   still  timestamptz  a GPU that has been idle since before that counts as idle
--   heard  timestamptz  of an agent whose last batch is older nothing counts
WITH idle AS (
    -- One that was not idle for long enough at the last run counts from its beginning.
    SELECT attempt.id, attempt.idle_noted_at AS noted_at, sum(extract(epoch FROM %(now)s - CASE
        WHEN rank.gpu_idle_since + (%(now)s - %(still)s) <= attempt.idle_noted_at THEN attempt.idle_noted_at
        ELSE GREATEST(rank.gpu_idle_since, attempt.launched_at) END)) AS seconds
    FROM jobs_rank AS rank
    JOIN jobs_replica AS replica ON replica.id = rank.replica_id
    JOIN jobs_attempt AS attempt ON attempt.job_id = rank.job_id AND attempt.number = rank.attempt
    WHERE rank.state = 'running' AND rank.gpu_idle_since <= %(still)s AND replica.last_batch_at > %(heard)s
        AND attempt.ended_at IS NULL AND COALESCE(attempt.idle_noted_at, attempt.launched_at) < %(now)s
    GROUP BY attempt.id
)
UPDATE jobs_attempt AS attempt SET idle_seconds = attempt.idle_seconds + idle.seconds, idle_noted_at = %(now)s
FROM idle WHERE attempt.id = idle.id AND attempt.idle_noted_at IS NOT DISTINCT FROM idle.noted_at
