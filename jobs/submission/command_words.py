"""What a command starts, and one that was quoted as a whole: one word with blanks in it, the name of no program."""

import contextlib
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from common.errors import InvalidInput
from jobs.core.shell_words import quoted_whole, split
from jobs.core.spec import JobSpec
from queues.models import Queue
from workspaces.models import Workspace
from workspaces.reading import DamagedStore, entries

APP = "/app"  # where images of other systems have the code of a job
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


def notes(*, sent: Mapping[str, Any], queue: Queue, spec: JobSpec, workspace: Workspace | None) -> list[str]:
    """Return notes for the user on how the command was interpreted; `spec` is what came of it."""
    command = sent.get("command") or queue.defaults.get("command")
    whole = quoted_whole(command)
    text = whole or (command if isinstance(command, str) else "")
    given = split(text) if text else command if isinstance(command, list | tuple) else []
    paths = [word for word, became in zip(map(str, given), spec.command, strict=False) if word != became]
    found = [f"{path} is {below} of the job's code" for path in paths if (below := _below_app(path))]
    if not whole or is_file_of(workspace)(whole):
        return found
    words = " ".join(shlex.quote(word) for word in split(whole))
    unless = "" if workspace else ", unless the code has a file with this name"
    return [f"the command was given as one word with spaces; it is split as a shell would: {words}{unless}", *found]


def in_code(spec: JobSpec, workspace: Workspace | None) -> JobSpec:
    """Return the job with paths below /app as paths in its code, where the code has them: images of others keep it there.

    Texts of a shell stay as they are, and so does everything where the job starts in a folder of its image.
    """
    if workspace is None:
        return spec
    folder = _below_app(spec.working_dir)
    folder = folder if folder is not None and is_folder_of(workspace)(folder or ".") else spec.working_dir
    if folder.startswith("/"):
        return spec
    is_file, start = is_file_of(workspace), folder or "."
    words = tuple(
        posixpath.relpath(path, start) if (path := _below_app(word)) and is_file(path) else word
        for word in spec.command
    )
    return replace(spec, command=words, working_dir=folder)


def _below_app(path: str) -> str | None:
    """Return what follows /app/ in a path, empty for /app itself; None for any other path."""
    plain = posixpath.normpath(path) if path else ""
    return plain[len(APP) + 1 :] if plain == APP or plain.startswith(f"{APP}/") else None


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
