"""A framework of which nothing is known: its command runs as it is."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence

from ..state import Spec, StateFolder


class Framework:
    def prepare(self, env: Dict[str, str], *, spec: Spec, folder: StateFolder, pyz: str) -> None:
        """Add what the launcher needs to the environment of the command and all that it starts."""

    def script(self, command: Sequence[str]) -> Optional[str]:
        """Return the script that its launcher would run, "" if that is unknown; None for another command."""
        return None

    def instead(self, command: Sequence[str], *, python: str) -> Optional[List[str]]:
        """Return what to run where the command's program does not exist; None: nothing."""
        return None
