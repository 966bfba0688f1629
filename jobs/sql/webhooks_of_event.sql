-- Webhooks of a team that are to be notified of an event of a job.
-- Run by jobs/webhooks/outbox.py (deliveries), in the transaction of the step.
-- Guard: FOR KEY SHARE. Until the step is committed nobody deletes the webhook, and no other step waits.
--
-- Parameters:
--   team     bigint  id of the team
--   names    text[]  webhooks that the job names
--   choices  text[]  choices of a webhook that include the event
SELECT id FROM jobs_webhook
WHERE team_id = %(team)s AND is_active AND (all_jobs OR name = ANY(%(names)s)) AND events && %(choices)s::varchar[]
FOR KEY SHARE
