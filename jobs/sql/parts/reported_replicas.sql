-- Replica states that a cluster reported, as rows.
reported AS (
    SELECT * FROM json_to_recordset(%(states)s::json) AS t(job bigint, uid text, attempt int, role text, index int,
        incarnation int, state text, exit_code int, signal int, reason text, node text, version bigint, namespace text)
)
