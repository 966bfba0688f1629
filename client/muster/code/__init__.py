"""The working directory as a job's code: scan it, compare it with the server's, send what is missing."""
