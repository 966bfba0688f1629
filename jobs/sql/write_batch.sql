-- Write all changes of a batch: its replica, log segments, chunks of metrics, and ranks.
-- Run by jobs/ingest/replica_rows.py (write), once for each batch, as a transaction of its own.
-- Guard: all or nothing, and once. If the batch number differs from the one that was read, or the place was given to another
-- agent, no row is written and the count is 0. No lock is held between reading and writing.
-- Returns the count of replicas written (0 or 1), and whether a visit has to judge the attempt.
--
-- Parameters:
--   changes              json    lists of rows: segments, chunks, ranks; times in seconds since the epoch
--   replica              bigint  id of the replica
--   incarnation          int     of the agent that sent the batch
--   before               bigint  the batch number that was read
--   seq                  bigint  this batch's number; equal to before for lines that are no batch of the agent
--   is_over              bool    the attempt was over when it was read
--   has_failed           bool    a rank has failed
--   may_matter           bool    a verdict, if there is one, may change
--   stored               bigint  bytes of text in the file
--   path                 text    the file with the segments' text
--   nodes                json    what the agent reports of its machine, or null
--   unexpected           json    ranks that nobody planned, or null if they did not change
--   unexpected_of_ended  json    the same for a replica that has ended
--   unexpected_lines     bigint  lines of those without a row
--   idle                 float8  the share of a GPU below which it counts as idle
--   replica_ended        text[]  states of a replica that has ended; it may have since it was read
-- Fragments:
--   {takes}  parts/report_takes.sql
--   {ended}  states of a rank that has ended. No parameter: with {takes} they stand here forty times, which costs every batch.
WITH batch AS (
    SELECT %(changes)s::json AS changes
), news AS (
    SELECT %(has_failed)s OR (%(may_matter)s AND EXISTS (
        SELECT FROM jobs_replica r JOIN jobs_attemptfailure f USING (job_id, attempt) WHERE r.id = %(replica)s)) AS is_for_judge
), won AS (
    UPDATE jobs_replica SET
        batch_seq = %(seq)s,
        is_restored = is_restored AND %(seq)s = %(before)s,
        log_bytes = log_bytes + %(stored)s,
        last_batch_at = CASE WHEN %(seq)s > %(before)s THEN now() ELSE last_batch_at END,
        mirrored_at = CASE WHEN %(seq)s > %(before)s THEN mirrored_at ELSE now() END,
        unexpected_ranks = COALESCE(CASE WHEN %(is_over)s OR closed_at IS NOT NULL OR state = ANY(%(replica_ended)s)
            THEN %(unexpected_of_ended)s ELSE %(unexpected)s END::jsonb, unexpected_ranks),
        unexpected_lines = unexpected_lines + %(unexpected_lines)s,
        nodes = COALESCE(%(nodes)s::jsonb, nodes),
        unjudged_at = CASE WHEN (SELECT is_for_judge FROM news) THEN clock_timestamp() ELSE unjudged_at END
    WHERE id = %(replica)s AND batch_seq = %(before)s AND incarnation = %(incarnation)s
    RETURNING id, job_id, attempt, %(is_over)s OR closed_at IS NOT NULL AS is_over
), segment AS (
    INSERT INTO jobs_logsegment
        (job_id, attempt, replica_id, rank, first_line, lines, first_at, last_at, raw_bytes, path, "offset", size_bytes)
    SELECT won.job_id, won.attempt, won.id, s.rank, s.first_line, s.lines, to_timestamp(s.first_at),
        to_timestamp(s.last_at), s.raw_bytes, CASE WHEN s.is_text THEN %(path)s ELSE '' END, s."offset", s.size_bytes
    FROM won, batch, json_to_recordset(batch.changes->'segments') AS s(rank int, first_line bigint, lines int,
        first_at float8, last_at float8, raw_bytes int, is_text bool, "offset" int, size_bytes int)
), chunk AS (
    INSERT INTO jobs_metricchunk (job_id, attempt, rank, name, times, steps, values)
    SELECT won.job_id, won.attempt, c.rank, c.name, c.times, c.steps, c.values
    FROM won, batch, json_to_recordset(batch.changes->'chunks') AS c(rank int, name text, times float8[], steps bigint[],
        values float8[])
), reported AS (
    UPDATE jobs_rank r SET
        state = CASE WHEN {takes} THEN t.state ELSE r.state END,
        restarts = CASE WHEN {takes} THEN GREATEST(t.restart, r.restarts) ELSE r.restarts END,
        pid = CASE WHEN {takes} THEN COALESCE(t.pid, r.pid) ELSE r.pid END,
        world_rank = CASE WHEN {takes} THEN COALESCE(t.world_rank, r.world_rank) ELSE r.world_rank END,
        world_size = CASE WHEN {takes} THEN COALESCE(t.world_size, r.world_size) ELSE r.world_size END,
        started_at = CASE WHEN {takes} AND t.state = 'running' THEN to_timestamp(t.at) ELSE r.started_at END,
        ended_at = CASE WHEN {takes} THEN CASE WHEN t.state IN ({ended}) THEN to_timestamp(t.at) END ELSE r.ended_at END,
        exit_code = CASE WHEN {takes} THEN t.exit_code ELSE r.exit_code END,
        signal = CASE WHEN {takes} THEN t.signal ELSE r.signal END,
        error_at = CASE WHEN {takes} THEN to_timestamp(t.error_at) ELSE r.error_at END,
        is_connection_error = CASE WHEN {takes} THEN t.is_connection_error ELSE r.is_connection_error END,
        is_stopped = CASE WHEN {takes} THEN t.is_stopped ELSE r.is_stopped END,
        error = CASE WHEN {takes} THEN t.error ELSE r.error END,
        step = COALESCE(t.step, r.step),
        nan_series = COALESCE(t.nan_series, r.nan_series),
        nan_step = CASE WHEN t.nan_series IS NULL THEN r.nan_step ELSE t.nan_step END,
        last_line_at = COALESCE(to_timestamp(t.last_line_at), r.last_line_at),
        lines = COALESCE(t.lines, r.lines),
        cpu = COALESCE(t.cpu, r.cpu),
        rss_bytes = COALESCE(t.rss_bytes, r.rss_bytes),
        gpu = COALESCE(t.gpu, r.gpu),
        gpu_idle_since = CASE WHEN t.gpu IS NULL THEN r.gpu_idle_since
            WHEN t.gpu < %(idle)s THEN COALESCE(r.gpu_idle_since, now()) END,
        gpu_mem_bytes = COALESCE(t.gpu_mem_bytes, r.gpu_mem_bytes),
        gpu_mem_total_bytes = COALESCE(t.gpu_mem_total_bytes, r.gpu_mem_total_bytes),
        gpu_watts = COALESCE(t.gpu_watts, r.gpu_watts),
        gpu_celsius = COALESCE(t.gpu_celsius, r.gpu_celsius),
        gpu_ecc_errors = COALESCE(t.gpu_ecc_errors, r.gpu_ecc_errors),
        gpu_xid = COALESCE(t.gpu_xid, r.gpu_xid)
    FROM won, batch, json_to_recordset(batch.changes->'ranks') AS t(rank int, state text, restart int, pid int,
        world_rank int, world_size int, at float8, exit_code int, signal int, error_at float8, is_connection_error bool,
        is_stopped bool, error jsonb, step bigint, last_line_at float8, lines bigint, cpu float8, rss_bytes bigint, gpu float8,
        gpu_mem_bytes bigint, gpu_mem_total_bytes bigint, gpu_watts float8, gpu_celsius float8, gpu_ecc_errors bigint, gpu_xid int,
        nan_series text, nan_step bigint)
    WHERE r.replica_id = won.id AND r.rank = t.rank
)
SELECT (SELECT count(*) FROM won), is_for_judge FROM news
