"""What processes report about themselves: spans, measures, the log and its redaction."""
