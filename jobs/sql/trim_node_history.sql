-- Delete all but the newest changes of some nodes.
-- Run by jobs/control/node_rows.py (write), only where a node changed.
-- Cost: one walk of the index node_history for each node, which has about as many rows as are kept.
--
-- Parameters:
--   nodes  bigint[]  ids of rows of nodes
--   most   int       changes of each that stay
DELETE FROM jobs_nodehistory WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY node_id ORDER BY id DESC) AS place
        FROM jobs_nodehistory WHERE node_id = ANY(%(nodes)s::bigint[])
    ) numbered WHERE place > %(most)s::int
) RETURNING id
