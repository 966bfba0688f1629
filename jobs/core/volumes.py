"""What a job requests of its team by name, and where it is mounted: `datasets`, or `datasets:/data`. Volumes and secrets. Pure."""

import re
from collections.abc import Iterable
from typing import Any

from common.errors import Problem

MOST = 20
MAX_PATH = 255
_NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?\Z")
_TAKEN = ("/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/lib", "/tmp", "/muster")  # noqa: S108 - names of mount points


def parse(value: Any, problems: list[Problem], *, field: str = "volumes", example: str = "datasets") -> tuple[str, ...]:
    """Return the sent list, with each entry checked; adds problems to `problems`."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        problems.append(Problem(field, value, f'must be a list such as ["{example}"] or ["{example}:/data"]'))
        return ()
    if len(value) > MOST:
        problems.append(Problem(field, len(value), f"has at most {MOST} entries"))
        return ()
    for one in value:
        complaint = _complaint(one)
        if complaint:
            problems.append(Problem(field, one, complaint))
    for part, what in ((0, "name"), (1, "path")):
        given = [str(_split(one)[part]).rstrip("/") for one in value]
        doubled = sorted({one for one in given if one and given.count(one) > 1})
        problems.extend(Problem(field, one, f"appears twice; give each {what} once") for one in doubled)
    return tuple(value)


def over(below: Iterable[str], above: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of two lists; one of the same name in `above` replaces that in `below`."""
    added = tuple(above)
    names = set(mounts(added))
    return (*(one for one in below if one.partition(":")[0] not in names), *added)


def refuse_common_paths(first: Iterable[str], second: Iterable[str], problems: list[Problem], *, field: str) -> None:
    """Add a problem for each path of `second`, which is the field's, at which `first` has something already."""
    taken = {path.rstrip("/"): name for name, path in mounts(first).items() if path}
    problems += [
        Problem(field, f"{name}:{path}", f"is mounted where {taken[path.rstrip('/')]} is; choose another path")
        for name, path in mounts(second).items()
        if path.rstrip("/") in taken
    ]


def mounts(volumes: Iterable[str]) -> dict[str, str]:
    """Return name to mount path; an empty path leaves the choice to the volume or the cluster."""
    return {name: path for name, path, _ in map(_split, volumes)}


def read_only(volumes: Iterable[str]) -> frozenset[str]:
    """Return the names of those that are to be mounted without the right to write: `name:ro`, `name:/path:ro`."""
    return frozenset(name for name, _, is_read_only in map(_split, volumes) if is_read_only)


def _split(one: str) -> tuple[str, str, bool]:
    name, _, rest = one.partition(":")
    path = rest.removesuffix(":ro") if rest != "ro" else ""
    return name, path, rest == "ro" or rest.endswith(":ro")


def _complaint(one: str) -> str:
    name, path, is_read_only = _split(one)
    if not _NAME.match(name):
        return "must begin with a name of 1 to 40 of a-z, 0-9 and -, not beginning or ending with -"
    return path_complaint(path) if ":" in one and not (is_read_only and not path) else ""


def path_complaint(path: Any) -> str:
    """Return what is wrong with a place to mount something at; empty if nothing is."""
    if not isinstance(path, str):
        return "needs an absolute path, such as /data"
    parts = path.removesuffix("/").split("/")
    if not path.startswith("/") or {".", ".."} & set(parts) or "" in parts[1:]:
        return "needs an absolute path after the colon, without . and .. and without a second / beside the first"
    if not path.isprintable() or len(path.encode()) > MAX_PATH:
        return f"needs a path of at most {MAX_PATH} bytes after the colon, without control characters"
    if path == "/" or any(path == taken or path.startswith(f"{taken}/") for taken in _TAKEN):
        return f"{path} belongs to the image; choose another place, such as /data"
    return ""
