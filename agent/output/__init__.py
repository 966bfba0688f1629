"""From the ranks' pipes to numbered batches: journal, spool, sending, and the guardian."""
