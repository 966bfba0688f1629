"""What a command starts, and one that was quoted as a whole: one word with blanks in it, the name of no program."""

import contextlib
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common.errors import InvalidInput
from jobs.core.shell_words import quoted_whole, split
from queues.models import Queue
from workspaces.models import Workspace
from workspaces.reading import DamagedStore, entries

_SCRIPTS = (".py", ".sh", ".bash", ".pyz", ".ipynb")
_BEFORE = ("env", "exec", "nohup", "time")
_TEXT_FOLLOWS = re.compile(r"-[A-Za-z]{0,8}c")  # of a shell or an interpreter


def launched(command: Sequence[str]) -> str:
    """Return the script, module or program that a command starts.

    Nothing else of it: a name is shown to everybody and sent to webhooks, and values of options, assignments and the
    text of a shell may be secrets.
    """
    words = split(command[0]) if len(command) == 1 and " " in command[0] else list(command)
    end = next((at for at, word in enumerate(words) if _TEXT_FOLLOWS.fullmatch(word)), len(words))
    words = [word for word in words[:end] if "=" not in word]
    if script := next((one for one in words if one.endswith(_SCRIPTS) and " " not in one), ""):
        return script
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1].rpartition(".")[2]
    return next((word for word in words if not word.startswith("-") and word not in _BEFORE), "")


def notes(*, sent: Mapping[str, Any], queue: Queue, workspace: Workspace | None) -> list[str]:
    """Return notes for the user on how the command was interpreted."""
    whole = quoted_whole(sent.get("command") or queue.defaults.get("command"))
    if not whole or is_file_of(workspace)(whole):
        return []
    words = " ".join(shlex.quote(word) for word in split(whole))
    unless = "" if workspace else ", unless the code has a file with this name"
    return [f"the command was given as one word with spaces; it is split as a shell would: {words}{unless}"]


def is_folder_of(workspace: Workspace | None) -> Callable[[str], bool]:
    """Return a predicate: whether the code has a folder of this path; True where there is no code to look at."""

    def is_folder(path: str) -> bool:
        paths, begins = _paths(workspace), posixpath.normpath(path) + "/"
        return paths is None or begins == "./" or any(one.startswith(begins) for one in paths)

    return is_folder


def is_file_of(workspace: Workspace | None) -> Callable[[str], bool]:
    """Return a predicate: whether the code has a file of this path. The file list is read only if needed."""
    return lambda path: posixpath.normpath(path) in (_paths(workspace) or ())


def _paths(workspace: Workspace | None) -> list[str] | None:
    """Return the paths of the code's files; None if there is none, or if it cannot be read."""
    if workspace is not None:
        with contextlib.suppress(DamagedStore, InvalidInput):  # reported where the code is needed
            return [entry.path for entry in entries(workspace)]
    return None
