-- The end of one stream, its last segment first.
-- Run by jobs/logs/segments.py (last).
-- Cost: one step into the index of (replica, rank, first line).
--
-- Parameters:
--   replica  bigint  id of the replica
--   rank     int     -1 for the lines of no rank
--   limit    int     segments
-- Fragments:
--   {columns}  parts/segment_columns.sql
SELECT {columns} FROM jobs_logsegment s
WHERE s.replica_id = %(replica)s AND s.rank = %(rank)s
ORDER BY s.first_line DESC LIMIT %(limit)s
