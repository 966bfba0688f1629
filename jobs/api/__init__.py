"""/api/v1/jobs and related resources. Parse, call one service or reader, render."""
