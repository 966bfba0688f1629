-- Whether a segment (s) is of the rank and of the replica that the reader asked for; null stands for all.
(%(rank)s::int IS NULL OR s.rank = %(rank)s) AND (%(role)s::text IS NULL OR s.replica_id = (
    SELECT id FROM jobs_replica
    WHERE job_id = %(job)s AND attempt = %(attempt)s AND role = %(role)s AND index = %(index)s
))
