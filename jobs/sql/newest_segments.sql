-- The segments that arrived last, newest first.
-- Run by jobs/logs/segments.py (newest), when a reader begins at the end of a log.
--
-- Parameters:
--   job      bigint  id of the job
--   attempt  int
--   rank     int     only this rank's lines, -1 for those of no rank; null for all
--   role     text    only this replica's lines, by its role; null for all
--   index    int     and its number within the role
--   limit    int     segments
-- Fragments:
--   {columns}    parts/segment_columns.sql
--   {of_source}  parts/segments_of_source.sql
SELECT {columns} FROM jobs_logsegment s
WHERE s.job_id = %(job)s AND s.attempt = %(attempt)s AND {of_source}
ORDER BY s.id DESC LIMIT %(limit)s
