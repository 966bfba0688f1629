"""A framework of which nothing is known: its command runs as it is."""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence

from ..output.followed import Followed
from ..state import Spec, StateFolder


class Framework:
    def prepare(self, env: Dict[str, str], *, spec: Spec, folder: StateFolder, pyz: str) -> None:
        """Add what the launcher needs to the environment of the command and all that it starts."""

    def missing(self, find: Callable[[str], Optional[str]], *, env: Dict[str, str]) -> str:
        """Return what the image or environment lacks, and the way out; "" if nothing. `find` looks a program up."""
        return ""

    def script(self, command: Sequence[str]) -> Optional[str]:
        """Return the script that its launcher would run, "" if that is unknown; None for another command."""
        return None

    def instead(self, command: Sequence[str], *, python: str) -> Optional[List[str]]:
        """Return what to run where the command's program does not exist; None: nothing."""
        return None

    def wrapped(self, words: List[str], *, spec: Spec, folder: StateFolder, env: Dict[str, str], pyz: str) -> List[str]:
        """Return what to execute for `words`, whose first is a path: they themselves, or a program around them."""
        return words

    def rank_of(self, line: bytes) -> Optional[int]:
        """Return which rank of its role a line of the launcher's output names as its author; None: none."""
        return None

    def has_ranks(self) -> bool:
        """Return whether a command that started none of its ranks is worth a note."""
        return False

    def is_launcher(self, pid: int) -> bool:
        """Return whether this living process is one that starts ranks."""
        return False

    def followed(self, folder: StateFolder) -> Optional[Followed]:
        """Return the log files that belong to the launcher's output; None where it prints everything itself."""
        return None

    def clean(self, folder: StateFolder) -> None:
        """Remove what the replica left outside of its folder; every process of it has ended. May be called again."""
