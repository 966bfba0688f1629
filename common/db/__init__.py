"""Connections to Postgres: pools, time limits, leadership by a lock, operations of migrations, SQL files."""
