-- Update the replicas whose state differs from the reported one (ours), and end the ranks that ended with them.
-- Guard: the larger version wins, or any version after a time in which no cached view can be that old; 0 is unnumbered.
changed AS (
    UPDATE jobs_replica r SET
        state = t.state, exit_code = t.exit_code, signal = t.signal, reason = t.reason,
        node = CASE WHEN t.node = '' THEN r.node ELSE t.node END,
        started_at = CASE WHEN t.state = 'running' THEN COALESCE(r.started_at, %(now)s) ELSE r.started_at END,
        ended_at = CASE WHEN t.state = ANY(%(ended)s) THEN COALESCE(r.ended_at, %(now)s) ELSE r.ended_at END,
        seen_version = t.version, seen_at = %(now)s
    FROM ours t
    WHERE r.job_id = t.job AND r.attempt = t.attempt AND r.role = t.role AND r.index = t.index
        AND r.incarnation = t.incarnation
        AND (t.version >= r.seen_version OR t.version = 0 OR r.seen_at < %(oldest)s)
        AND (r.state, r.exit_code, r.signal, r.reason, r.node) IS DISTINCT FROM
            (t.state, t.exit_code, t.signal, t.reason, CASE WHEN t.node = '' THEN r.node ELSE t.node END)
    RETURNING r.id, r.job_id, r.state
), closed AS (
    -- Ranks of a replica that an elastic job lost, whose end nobody reported: the others go on, and do not wait for them.
    UPDATE jobs_rank k SET state = 'failed', is_stopped = true, ended_at = %(now)s
    FROM changed c JOIN jobs_job j ON j.id = c.job_id
    WHERE k.replica_id = c.id AND k.state = 'running' AND c.state IN ('failed', 'lost')
        AND j.roles @? '$[*] ? (@.least != null)'
)
