"""From what a user sends to a job that may be submitted: defaults, checks, and what will become of it."""
