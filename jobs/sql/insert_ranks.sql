-- Insert the rows of the ranks in a role's replicas for a new attempt.
-- Run by jobs/control/attempt_rows.py (insert), in the transaction of the step that begins the attempt, after
-- insert_replicas.sql. One statement, because a large job has tens of thousands of similar rows.
--
-- Parameters:
--   job         bigint  id of the job
--   attempt     int
--   role        text
--   first_rank  int     rank of the first process in the role's first replica
--   processes   int     in each replica
--   default_*   any     the other columns' defaults (jobs/models/inserts.py)
-- Fragments:
--   {columns}   columns of jobs_rank
--   {defaults}  a parameter for each column that is not named here
INSERT INTO jobs_rank ({columns})
SELECT r.id, r.job_id, r.attempt, %(first_rank)s + r.index * %(processes)s + local, local, {defaults}
FROM jobs_replica r, generate_series(0, %(processes)s - 1) AS local
WHERE r.job_id = %(job)s AND r.attempt = %(attempt)s AND r.role = %(role)s
