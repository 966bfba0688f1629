"""Which paths and links a workspace may contain. Pure; the agent checks the same again before it writes.

A target's `..` may only stand at its beginning: the folders above a link are real ones (nothing is below a link), so
the way up is exact, and every link on the way down leads inside by the same rule. So no chain of links leads out.
"""

import re

from common.text import CONTROL, SURROGATES

MAX_PATH_BYTES = 1024
MAX_PART_BYTES = 255  # of a name in every common file system

_CONTROL = re.compile(f"[{CONTROL}{SURROGATES}]")


def path_problem(path: str) -> str:
    """Return what is wrong with a path, and how to fix it; empty if nothing is."""
    if problem := _text_problem(path):
        return problem
    if path.startswith("/"):
        return "must be relative to the folder; leave out the leading slash"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return f"must not contain {part!r} as a component; give the direct path from the folder"
        if len(part.encode()) > MAX_PART_BYTES:
            return f"has a part of {len(part.encode())} bytes, a name has at most {MAX_PART_BYTES}; rename it"
    return ""


def target_problem(target: str, *, depth: int) -> str:
    """Return what is wrong with a link's target, for a link `depth` folders below the top; empty if nothing is."""
    if problem := _text_problem(target):
        return problem
    if target.startswith("/"):
        return "must not be absolute; make the link relative (ln -sr)"
    is_down = False
    for step in target.split("/"):
        if step == ".." and is_down:
            return "must not go down and up again; write the direct path"
        depth -= step == ".."
        is_down = is_down or step not in ("", ".", "..")
        if depth < 0:
            return "leaves the workspace; copy what it points to, or list the link in .musterignore"
    return ""


def _text_problem(text: str) -> str:
    if not text:
        return "is empty; name a file below the folder"
    if found := _CONTROL.search(text):
        return f"holds the character U+{ord(found[0]):04X}, which no name may; rename it"
    length = len(text.encode())
    return f"has {length} bytes, at most {MAX_PATH_BYTES} are kept; shorten it" if length > MAX_PATH_BYTES else ""
