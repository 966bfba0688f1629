"""The commands, imported by `muster.cli` only."""

from __future__ import annotations

import sys

# Where rich is installed httpx imports it for a command line of its own, which takes 50 ms of every start. None makes
# that import fail, as httpx expects where rich is missing. The SDK leaves httpx as it is.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
