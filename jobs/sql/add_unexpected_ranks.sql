-- Insert rows for ranks that nobody planned.
-- Run by jobs/ingest/replica_rows.py (add_ranks), when a batch names such a rank for the first time.
-- Guard: none is added to a replica that has ended or whose place was given to another agent, and none that is another
-- replica's rank. But a role without ranks of its own, such as a controller whose script starts processes beside itself,
-- takes over planned ranks that still wait: it runs them in place of the replicas that they were planned for.
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
ON CONFLICT (job_id, attempt, rank) DO UPDATE SET replica_id = EXCLUDED.replica_id, local_rank = EXCLUDED.local_rank
WHERE jobs_rank.state = 'waiting' AND jobs_rank.replica_id <> EXCLUDED.replica_id AND EXISTS (
    SELECT 1
    FROM jobs_replica r JOIN jobs_job j ON j.id = r.job_id, jsonb_to_recordset(j.roles) AS o(name text, processes int)
    WHERE r.id = %(replica)s AND o.name = r.role AND o.processes = 0
)
