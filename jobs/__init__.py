"""Submission, launch, observation and end of jobs."""
