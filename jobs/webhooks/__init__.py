"""Notify other programs of what happens to a team's jobs: signed HTTP requests, retried until they are received."""
