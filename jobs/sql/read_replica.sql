-- Read the replica that a batch came from, its job, and where each of its streams and ranks stands.
-- Run by jobs/ingest/replica_rows.py (find), once for each batch. No lock: the batch number is the version (write_batch.sql).
-- No row: there is no such replica, or its place was given to another agent.
--
-- Parameters:
--   job          bigint  id of the job
--   uid          text    the job's uid, from its run's name
--   attempt      int
--   role         text
--   index        int     number of the replica within its role
--   incarnation  int     how often its place was filled before
-- Fragments:
--   {sampled}       columns of jobs_rank that an agent samples, translate.SAMPLED
--   {none_sampled}  as many NULLs
SELECT r.id, r.batch_seq, j.id, j.team_id, j.attempt, j.phase, extract(epoch FROM j.created_at)::float8, p.positions,
    r.lines_before, r.mirrored_at IS NOT NULL, r.unexpected_ranks, r.unexpected_lines,
    COALESCE(NULLIF((SELECT sum((one.role->>'replicas')::int * (one.role->>'processes')::int)::int
        FROM jsonb_array_elements(j.roles) AS one(role)), 0), j.slots),
    extract(epoch FROM COALESCE(r.closed_at, CASE WHEN r.attempt < j.attempt THEN j.launched_at
        ELSE COALESCE(j.finished_at, j.phase_since) END))::float8, r.closed_at IS NOT NULL,
    j.logs_collected_at IS NOT NULL, r.is_restored, r.unjudged_at IS NOT NULL
FROM jobs_replica r JOIN jobs_job j ON j.id = r.job_id, LATERAL (
    SELECT json_agg(json_build_array(rank, line, extract(epoch FROM at), state, restarts, nan_series, {sampled})) AS positions FROM (
        SELECT rank, lines AS line, last_line_at AS at, state, restarts, nan_series, {sampled} FROM jobs_rank
        WHERE replica_id = r.id
        UNION ALL
        -- The launcher's stream has no row of its own; its last segment says where it ends.
        (SELECT rank, first_line + lines, last_at, '', 0, '', {none_sampled} FROM jobs_logsegment
         WHERE replica_id = r.id AND rank = -1 ORDER BY first_line DESC LIMIT 1)
    ) streams
) p
WHERE j.id = %(job)s AND j.uid = %(uid)s AND r.attempt = %(attempt)s AND r.role = %(role)s AND r.index = %(index)s
    AND r.incarnation = %(incarnation)s
