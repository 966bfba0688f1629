"""Which waiting job gets quota: the rows that `queues.admission` decides on, what is recorded of it, and what users read of it."""
