"""What is derived from rows: verdicts, attempts, metrics and their roll-ups, progress."""
