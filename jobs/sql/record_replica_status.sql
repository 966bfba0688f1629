-- Write the replica states that a visit observed; return the job if any changed.
-- Run by jobs/control/replica_status.py (record), in the visit's transaction.
-- Guard: the visit holds the job's lock already; versions as in parts/changed_replicas.sql.
--
-- Parameters:
--   states  json         the states, with job, attempt, role, index and incarnation
--   now     timestamptz  time of the observation
--   oldest  timestamptz  a row last seen before takes any version
--   ended   text[]       states of a replica that has ended
-- Fragments:
--   {reported}  parts/reported_replicas.sql
--   {changed}   parts/changed_replicas.sql
WITH {reported}, ours AS (
    SELECT * FROM reported
), {changed}
SELECT DISTINCT job_id FROM changed
