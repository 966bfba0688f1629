"""Handle a command that was quoted as a whole: one word with blanks in it, which is the name of no program."""

import contextlib
import posixpath
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from common.errors import InvalidInput
from jobs.core.shell_words import quoted_whole, split
from queues.models import Queue
from workspaces.models import Workspace
from workspaces.reading import DamagedStore, entries


def notes(*, sent: Mapping[str, Any], queue: Queue, workspace: Workspace | None) -> list[str]:
    """Return notes for the user on how the command was interpreted."""
    whole = quoted_whole(sent.get("command") or queue.defaults.get("command"))
    if not whole or is_file_of(workspace)(whole):
        return []
    words = " ".join(shlex.quote(word) for word in split(whole))
    unless = "" if workspace else ", unless the code has a file with this name"
    return [f"the command was given as one word with spaces; it is split as a shell would: {words}{unless}"]


def is_file_of(workspace: Workspace | None) -> Callable[[str], bool]:
    """Return a predicate: whether the code has a file of this path. The file list is read only if needed."""

    def is_file(path: str) -> bool:
        if workspace is None:
            return False
        with contextlib.suppress(DamagedStore, InvalidInput):  # reported where the code is needed
            return any(entry.path == posixpath.normpath(path) for entry in entries(workspace))
        return False

    return is_file
