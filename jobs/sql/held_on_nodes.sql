-- What Muster's own pods hold of the GPUs of a cluster's nodes: node, job, GPUs, replicas, and how many of these GPUs are idle
-- or broken by what their ranks reported last.
-- Run by jobs/analysis/cluster_nodes.py (held_on), once for all nodes in sums, once for the jobs on the nodes of a page.
-- Cost: the index replica_live_by_node, which has only replicas that have not ended, one step into an index for the job of
-- each, and the index rank_to_look_at once, which has only ranks whose GPU is idle or has errors.
-- A replica counts from when its node is known until it has ended. Jobs that count CPU slots hold no GPUs. What agents reported
-- counts only while they go on to report.
--
-- Parameters:
--   cluster  text         name of the cluster
--   phases   text[]       in which a job may have pods
--   nodes    text[]       names of the only nodes to read, where {within} asks for it
--   still    timestamptz  a GPU that has been idle since before that counts as idle
--   heard    timestamptz  of an agent whose last batch is older nothing counts
-- Fragments:
--   {job}     what the second column is: the job, or 0 for the sum of all
--   {within}  the condition on the node, or nothing
WITH live AS (
    SELECT r.id, r.node, r.role, r.last_batch_at, j.id AS job, j.slots, j.roles,
        CASE WHEN j.roles IS NULL THEN GREATEST(1, (j.spec->>'nodes')::int) END AS nodes
    FROM jobs_replica r JOIN jobs_job j ON j.id = r.job_id AND j.attempt = r.attempt JOIN queues_queue q ON q.id = j.queue_id
    WHERE r.node <> '' AND r.ended_at IS NULL AND r.closed_at IS NULL {within}
        AND q.cluster = %(cluster)s AND q.resource = 'gpu' AND j.phase = ANY(%(phases)s)
), takes AS MATERIALIZED (
    -- Materialized: inlined, the slots would be computed once for each place that names them.
    -- Releases before `slots` stored a role without it: of a job with one role it is a share of the whole.
    SELECT l.id, l.node, l.job, l.last_batch_at, CASE
        WHEN l.roles IS NULL THEN l.slots / l.nodes
        WHEN jsonb_array_length(l.roles) = 1 THEN
            COALESCE((l.roles->0->>'slots')::int, l.slots / GREATEST(1, (l.roles->0->>'replicas')::int))
        ELSE (SELECT COALESCE((one.role->>'slots')::int, (one.role->>'processes')::int)
            FROM jsonb_array_elements(l.roles) AS one(role) WHERE one.role->>'name' = l.role LIMIT 1) END AS slots
    FROM live l
)
SELECT t.node, {job} AS job, sum(t.slots)::int, count(*)::int,
    COALESCE(sum(LEAST(COALESCE(k.idle, 0), t.slots)) FILTER (WHERE t.last_batch_at > %(heard)s), 0)::int,
    sum(LEAST(COALESCE(k.broken, 0), t.slots))::int
FROM takes t LEFT JOIN (
    SELECT replica_id, count(*) FILTER (WHERE gpu_idle_since <= %(still)s) AS idle,
        count(*) FILTER (WHERE gpu_xid IS NOT NULL OR gpu_ecc_errors > 0) AS broken
    FROM jobs_rank WHERE state = 'running' AND (gpu_idle_since IS NOT NULL OR gpu_xid IS NOT NULL OR gpu_ecc_errors > 0)
    GROUP BY replica_id
) k ON k.replica_id = t.id
WHERE t.slots > 0
GROUP BY 1, 2
