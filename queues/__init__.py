"""Queues, quota and ceilings, independent of jobs, and the decision which job is admitted next."""
