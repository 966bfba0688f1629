"""Secrets of a team: values that its jobs use and nobody reads again."""
