-- What Muster's own pods hold of the GPUs of a cluster's nodes: node, job, GPUs, replicas, and how many of these GPUs are idle
-- or broken by what their ranks reported last.
-- Run by jobs/analysis/cluster_nodes.py (held_on), once for a page.
-- Cost: one step into an index for each open job of the cluster, each of its replicas, and the ranks of each.
-- A replica counts from when its node is known until it has ended. Jobs that count CPU slots hold no GPUs. What agents reported
-- counts only while they go on to report.
--
-- Parameters:
--   cluster  text         name of the cluster
--   phases   text[]       in which a job may have pods
--   nodes    text[]       names of the only nodes to read; null: all
--   still    timestamptz  a GPU that has been idle since before that counts as idle
--   heard    timestamptz  of an agent whose last batch is older nothing counts
WITH open AS MATERIALIZED (
    SELECT j.id, j.attempt, j.slots, j.roles, GREATEST(1, (j.spec->>'nodes')::int) AS nodes
    FROM jobs_job j JOIN queues_queue q ON q.id = j.queue_id
    WHERE q.cluster = %(cluster)s AND q.resource = 'gpu' AND j.phase = ANY(%(phases)s)
), takes AS MATERIALIZED (
    -- Releases before `slots` stored a role without it: of a job with one role it is a share of the whole.
    SELECT o.id AS job, one.role->>'name' AS role, COALESCE((one.role->>'slots')::int,
        CASE WHEN jsonb_array_length(o.roles) = 1 THEN o.slots / GREATEST(1, (one.role->>'replicas')::int)
            ELSE (one.role->>'processes')::int END) AS slots
    FROM open o CROSS JOIN LATERAL jsonb_array_elements(o.roles) AS one(role) WHERE o.roles IS NOT NULL
    UNION ALL SELECT id, 'worker', slots / nodes FROM open WHERE roles IS NULL
)
SELECT r.node, r.job_id, sum(t.slots)::int, count(*)::int, sum(LEAST(k.idle, t.slots))::int, sum(LEAST(k.broken, t.slots))::int
FROM open o JOIN jobs_replica r ON r.job_id = o.id AND r.attempt = o.attempt
JOIN takes t ON t.job = r.job_id AND t.role = r.role
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE gpu_idle_since <= %(still)s AND r.last_batch_at > %(heard)s) AS idle,
        count(*) FILTER (WHERE gpu_xid IS NOT NULL OR gpu_ecc_errors > 0) AS broken
    FROM jobs_rank WHERE replica_id = r.id AND state = 'running'
) k
WHERE r.node <> '' AND r.ended_at IS NULL AND r.closed_at IS NULL
    AND (%(nodes)s::text[] IS NULL OR r.node = ANY(%(nodes)s::text[]))
GROUP BY r.node, r.job_id
HAVING sum(t.slots) > 0
