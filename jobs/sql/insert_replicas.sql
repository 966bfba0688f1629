-- Insert the rows of a role's replicas for a new attempt.
-- Run by jobs/control/attempt_rows.py (insert), in the transaction of the step that begins the attempt, which holds the job's
-- lock. One statement, because a large job has thousands of similar rows.
--
-- Parameters:
--   job        bigint  id of the job
--   attempt    int
--   launch     bigint  id of the attempt's row
--   role       text
--   prefix     text    of the replicas' names, to which the index is added
--   replicas   int     how many
--   default_*  any     the other columns' defaults (jobs/models/inserts.py)
-- Fragments:
--   {columns}   columns of jobs_replica
--   {defaults}  a parameter for each column that is not named here
INSERT INTO jobs_replica ({columns})
SELECT %(job)s, %(attempt)s, %(launch)s, %(role)s, number, %(prefix)s || number, {defaults}
FROM generate_series(0, %(replicas)s - 1) AS number
