"""/api/v1/jobs and what belongs to it. Parse, call one service or reader, render."""
