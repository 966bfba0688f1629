-- Jobs still in phase STARTING although all their replicas are up.
-- Run by jobs/control/replica_status.py (complete), by the watcher once a second for jobs it has reported as complete.
--
-- Parameters:
--   jobs  bigint[]  ids of the jobs to look at
--   up    text[]    states of a replica that is running, or was and succeeded
SELECT j.id FROM jobs_job j WHERE j.id = ANY(%(jobs)s) AND j.phase = 'starting' AND NOT EXISTS (
    SELECT 1 FROM jobs_replica r WHERE r.job_id = j.id AND r.attempt = j.attempt AND r.state <> ALL(%(up)s))
