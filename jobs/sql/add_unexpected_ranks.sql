-- Insert rows for ranks that nobody planned.
-- Run by jobs/ingest/replica_rows.py (add_ranks), when a batch names such a rank for the first time.
-- Guard: none is added to a replica that has ended or whose place was given to another agent, and none that is another
-- replica's rank.
--
-- Parameters:
--   ranks        json    objects with rank and local_rank
--   replica      bigint  id of the replica
--   incarnation  int     of the agent that named them
--   ended        text[]  states of a replica that has ended
--   default_*    any     the other columns' defaults (jobs/models/inserts.py)
-- Fragments:
--   {columns}   columns of jobs_rank
--   {defaults}  a parameter for each column that is not named here
INSERT INTO jobs_rank ({columns})
SELECT r.id, r.job_id, r.attempt, n.rank, n.local_rank, {defaults}
FROM jobs_replica r, json_to_recordset(%(ranks)s) AS n(rank int, local_rank int)
WHERE r.id = %(replica)s AND r.incarnation = %(incarnation)s AND r.closed_at IS NULL AND r.state <> ALL(%(ended)s)
ON CONFLICT (job_id, attempt, rank) DO NOTHING
