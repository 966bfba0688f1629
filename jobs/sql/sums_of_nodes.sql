-- What the nodes of a cluster come to, in one row: nodes; their GPUs; what Muster's pods hold of these, how many of them are idle, and
-- broken; what pods of others hold, null where that is not known of all nodes; what is free, the most on one node, and on how many
-- nodes; GPUs that nobody holds on nodes that take no pods, and how many such nodes there are.
-- Run by jobs/analysis/cluster_nodes.py (sums), for the overview. The same as `node_summary.summary` says of single nodes.
-- Cost: the nodes of the cluster, and held_on_nodes.sql.
--
-- Parameters:
--   cluster  text         name of the cluster
--   out      text[]       names of excluded nodes
--   phases   text[]       in which a job may have pods
--   still    timestamptz  a GPU that has been idle since before that counts as idle
--   heard    timestamptz  of an agent whose last batch is older nothing counts
-- Fragments:
--   {held}  held_on_nodes.sql in sums of all jobs
WITH held (node, job, slots, replicas, idle, broken) AS ({held}), node AS (
    SELECT n.gpus, n.others, COALESCE(h.slots, 0) AS slots, COALESCE(h.idle, 0) AS idle, COALESCE(h.broken, 0) AS broken,
        GREATEST(0, n.gpus - COALESCE(h.slots, 0) - COALESCE(n.others, 0)) AS rest,
        n.silence = '' AND NOT n.is_cordoned AND n.name <> ALL(%(out)s::text[]) AS takes_pods
    FROM jobs_clusternode n LEFT JOIN held h ON h.node = n.name
    WHERE n.cluster = %(cluster)s AND n.gone_at IS NULL
)
SELECT count(*)::int, COALESCE(sum(gpus), 0)::int, COALESCE(sum(slots), 0)::int, COALESCE(sum(idle), 0)::int, COALESCE(sum(broken), 0)::int,
    CASE WHEN bool_and(others IS NOT NULL OR gpus = 0) THEN COALESCE(sum(others), 0)::int END,
    COALESCE(sum(rest) FILTER (WHERE takes_pods), 0)::int, COALESCE(max(rest) FILTER (WHERE takes_pods), 0)::int,
    count(*) FILTER (WHERE takes_pods AND rest > 0)::int,
    COALESCE(sum(rest) FILTER (WHERE NOT takes_pods), 0)::int, count(*) FILTER (WHERE NOT takes_pods)::int
FROM node
