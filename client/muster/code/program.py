"""A command whose program is in the folder, but is not sent: `.venv/bin/python` would not be found in the job."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from muster.code.workspace import Tree
from muster.errors import WorkspaceError

_OF_AN_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")  # beside bin/, in an environment of venv, and of conda


def check_is_sent(command: str | Sequence[str], *, tree: Tree) -> None:
    """Raise WorkspaceError, with the way out, if the command starts a file of this machine by a path that jobs lack."""
    word = _first(command)
    path = os.path.join(tree.root, word)
    if "/" not in word or os.path.isabs(word) or not os.path.isfile(path):
        return
    sent = {one.path for one in tree.files} | {one.path for one in tree.links}
    names = {_within(tree.root, os.path.normpath(path)), _within(tree.root, os.path.realpath(path))}
    if names.isdisjoint(sent):
        raise WorkspaceError(f"the command starts {word}, which is not sent with the code. {_way_out(word, path=path)}")


def _first(command: str | Sequence[str]) -> str:
    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError:
        return ""  # the server says what is wrong with it
    return words[0] if words else ""


def _within(root: str, path: str) -> str:
    return os.path.relpath(path, root).replace(os.sep, "/")


def _way_out(word: str, *, path: str) -> str:
    full = os.path.normpath(path)  # links stay: an environment is found by the name of its interpreter
    if any(os.path.exists(os.path.join(os.path.dirname(full), "..", name)) for name in _OF_AN_ENVIRONMENT):
        return (
            f"If jobs run on this machine, name it in full: {full}. If not, name an interpreter that is there: "
            "python of the image, or an environment on a volume"
        )
    if os.path.normpath(word).startswith(".."):
        return f"It is outside of the folder; choose another one with --dir, or if jobs run on this machine name {full}"
    inside = os.path.normpath(word)
    folder = inside.partition(os.sep)[0]
    if folder == inside:
        return f"A line !/{inside} in .musterignore sends it"
    # A file cannot be taken out of a folder that is ignored as a whole (gitignore(5)).
    return f"Lines !/{folder}/ and !/{folder}/** in .musterignore send its folder"
