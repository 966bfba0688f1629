"""Metrics, spans of requests and tasks, and health."""
