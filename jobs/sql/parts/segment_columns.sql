-- The columns of a segment (s) in the order of jobs/logs/segments.py (Segment), the last one being its replica's name.
s.id, s.replica_id, s.rank, s.first_line, s.lines, s.first_at, s.last_at, s.raw_bytes, s.path, s."offset", s.size_bytes,
(SELECT r.role || '-' || r.index FROM jobs_replica r WHERE r.id = s.replica_id)
