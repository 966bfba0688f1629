-- Bytes that stored logs take, by team.
-- Run by jobs/logs/usage.py (by_team), for one team at most every few seconds in each process, for all where the disk is
-- nearly full.
-- Cost: finished jobs by their own column, which retention.py fills once a day (index job_log_bytes_by_team); the others by
-- what ingest wrote of them (index job_log_unsettled).
--
-- Parameters:
--   team  bigint  id of the team; null for all
SELECT team_id, sum(bytes)::bigint FROM (
    SELECT team_id, log_bytes AS bytes FROM jobs_job WHERE log_bytes > 0 AND (%(team)s::bigint IS NULL OR team_id = %(team)s)
    UNION ALL
    SELECT j.team_id, r.log_bytes FROM jobs_job j JOIN jobs_replica r ON r.job_id = j.id
    WHERE j.log_bytes IS NULL AND (%(team)s::bigint IS NULL OR j.team_id = %(team)s)
) parts
GROUP BY team_id
