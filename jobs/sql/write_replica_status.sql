-- Write the replica states that the watcher received; return the jobs that changed: id, team, whether it is starting, and
-- whether all its replicas are up.
-- Run by jobs/control/replica_status.py (write), as a transaction of its own: a busy cluster needs twenty of them a second.
-- Guard: locks jobs before replicas, in the order of visits. Other attempts, jobs without objects on a cluster and jobs that
-- do not exist are ignored, and so is what was seen elsewhere than the attempt was made: anyone who may create pods
-- there can give them any name and label. Versions as in parts/changed_replicas.sql.
--
-- Parameters:
--   states  json         the states, with job, uid, attempt, role, index, incarnation and namespace
--   cluster  text        where they were seen
--   now     timestamptz  time of the write
--   oldest  timestamptz  a row last seen before takes any version
--   ended   text[]       states of a replica that has ended
--   phases  text[]       phases in which a job has objects on a cluster
--   up      text[]       states of a replica that is running, or was and succeeded
-- Fragments:
--   {reported}  parts/reported_replicas.sql
--   {changed}   parts/changed_replicas.sql
WITH {reported}, held AS MATERIALIZED (
    SELECT id, team_id, uid, attempt, phase FROM jobs_job
    WHERE id IN (SELECT job FROM reported) AND phase = ANY(%(phases)s) ORDER BY id FOR NO KEY UPDATE
), ours AS (
    SELECT t.* FROM reported t JOIN held j ON j.id = t.job AND j.uid = t.uid AND j.attempt = t.attempt
    LEFT JOIN jobs_attempt a ON a.job_id = j.id AND a.number = j.attempt  -- none where an older process launched it
    WHERE a.id IS NULL OR a.cluster = %(cluster)s AND (a.namespace IN ('', t.namespace) OR t.namespace = '')
), {changed}
SELECT j.id, j.team_id, j.phase = 'starting', j.phase = 'starting' AND NOT EXISTS (
    SELECT 1 FROM jobs_replica r LEFT JOIN changed c ON c.id = r.id
    WHERE r.job_id = j.id AND r.attempt = j.attempt AND COALESCE(c.state, r.state) <> ALL(%(up)s))
FROM held j WHERE j.id IN (SELECT job_id FROM changed)
