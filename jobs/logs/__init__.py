"""Files of logs and the rows that name slices of them: storage, reading, search, compaction, retention."""
