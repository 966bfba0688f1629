-- The first waiting jobs of each of some queues: the ids of the queue and of the job.
-- Run by jobs/scheduling/reach.py (_rows), in each pass of the scheduler and where a page says why jobs wait.
-- Cost: as many steps in the index job_waiting_in_order (or job_waiting_by_slots) as rows that are returned, and one for each
-- that is left out because of its size.
--
-- Parameters:
--   queues  bigint[]  ids of the queues
--   most    int[]     the bound on the size of their jobs, in the same order
--   limit   int       jobs of each queue
-- Fragments:
--   {size}   the condition on `slots`, with q.most as the bound
--   {order}  the order of the jobs of a queue
SELECT q.id, j.id FROM unnest(%(queues)s::bigint[], %(most)s::int[]) AS q (id, most) CROSS JOIN LATERAL (
    SELECT id FROM jobs_job
    WHERE queue_id = q.id AND phase = 'queued' AND cancel_requested_at IS NULL AND NOT suspended AND {size}
    ORDER BY {order} LIMIT %(limit)s
) j
