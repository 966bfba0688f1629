"""What a lane of tests depends on, as one digest: where it is the same, the lane cannot come to another result.

A lane's key holds the content of
- the whole server: much of it is loaded by name (settings, apps, URLs, tasks, frameworks, clusters' backends), which no
  graph of imports shows;
- the programs that the lane starts (STARTS), whole for the same reason;
- its own tests and tests/support, and every module that those and the programs import (grimp);
- every tracked file that is no module: templates, SQL, the chart, documents, golden files, lock files, examples;
and the interpreter, the installed packages and the browser's version.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
SERVER = ("accounts", "common", "controlplane", "jobs", "queues", "workspaces", "credentials", "volumes")
PROGRAMS = ("agent", "bench", "client", "embedded", "rig")
# Programs that the tests of a level start or pack, beside what they import. A lane is a level or a folder of one.
STARTS: dict[str, tuple[str, ...]] = {
    "unit": (*PROGRAMS, "tests"),  # tests/unit/project reads every file of the repository
    "db": ("agent", "client"),
    "process": ("agent", "client", "embedded"),
    "contract": ("agent", "client", "embedded"),
    "simulation": (),
    "browser": ("agent", "client"),
    "cluster": ("agent", "client", "embedded", "rig"),
    "system": ("agent", "client", "embedded", "rig", "bench"),
}


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"


def key(lane: str, *, read: Callable[[str], bytes] | None = None) -> str:
    """Return the lane's key: 24 hexadecimal digits. `read` returns a file's content, by its path in the repository."""
    return hashlib.sha256(f"{machine()}\n{digest(files(lane), read=read)}".encode()).hexdigest()[:24]


def files(lane: str) -> list[str]:
    """Return the tracked files whose content the lane depends on, sorted."""
    whole = (*SERVER, *_starts(lane), f"tests/{lane}", "tests/support")
    found = {path for path in tracked() if path.startswith(tuple(f"{folder}/" for folder in whole))}
    found |= {path for path in tracked() if not _is_module(path)}
    found |= {path for module in _imported(lane) if (path := _path_of(module))}
    return sorted(found)


def digest(paths: Iterable[str], *, read: Callable[[str], bytes] | None = None) -> str:
    seen = hashlib.sha256()
    for path in paths:
        content = (read or _content)(path)
        seen.update(f"{path}\0{len(content)}\0".encode() + content)
    return seen.hexdigest()[:24]


@cache
def machine() -> str:
    """The interpreter, the installed packages and the browser."""
    packages = sorted(f"{one.name}=={one.version}" for one in distributions() if one.name)
    browser = shutil.which("chromium")
    said = subprocess.run([browser, "--version"], capture_output=True, text=True).stdout.strip() if browser else ""
    return "\n".join([sys.version, *packages, said])


@cache
def tracked() -> tuple[str, ...]:
    return tuple(sorted(path for path in git("ls-files", "-z").split("\0") if path and os.path.lexists(ROOT / path)))


def is_clean() -> bool:
    """Whether what is checked out is a commit: no tracked file differs and none is new."""
    return not git("status", "--porcelain").strip()


def head() -> str:
    """The commit that is checked out, 40 hexadecimal digits."""
    return git("rev-parse", "HEAD").strip()


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _is_module(path: str) -> bool:
    return path.endswith(".py") and path.startswith(tuple(f"{one}/" for one in (*SERVER, *PROGRAMS, "tests")))


@cache
def _imported(lane: str) -> frozenset[str]:
    """Return the modules that the lane's tests and programs import, directly or not, with the packages they are in."""
    drawn = _graph()
    folder = f"tests.{lane.replace('/', '.')}"
    start = {one for one in drawn.modules if _is_in(one, folder)}
    start |= {one for one in drawn.modules if any(_is_in(one, _package(name)) for name in _starts(lane))}
    start |= {f"{parent}.conftest" for parent in _parents(folder)} & drawn.modules
    start |= {"tests", "tests.settings", *_plugins()} & drawn.modules
    found = start.union(*(drawn.find_upstream_modules(module) for module in start))
    return frozenset(found | {parent for one in found for parent in _parents(one)})


@cache
def _graph() -> grimp.ImportGraph:
    for place in (str(ROOT), str(ROOT / "client")):
        if place not in sys.path:
            sys.path.insert(0, place)
    return grimp.build_graph(*SERVER, *map(_package, PROGRAMS), "tests", cache_dir=None)


def _starts(lane: str) -> tuple[str, ...]:
    return STARTS[lane.partition("/")[0]]


def _plugins() -> set[str]:
    """pytest's own plugins of this repository, which pyproject.toml names."""
    words = (ROOT / "pyproject.toml").read_text().split()
    return {word.strip('"') for before, word in zip(words, words[1:], strict=False) if before.endswith("-p")}


def _package(folder: str) -> str:
    return "muster" if folder == "client" else folder


def _path_of(module: str) -> str:
    place = ("client/" if _is_in(module, "muster") else "") + module.replace(".", "/")
    return next((one for one in (f"{place}.py", f"{place}/__init__.py") if one in _tracked()), "")


@cache
def _tracked() -> frozenset[str]:
    return frozenset(tracked())


def _content(path: str) -> bytes:
    file = ROOT / path
    return os.readlink(file).encode() if file.is_symlink() else file.read_bytes()


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _parents(module: str) -> Iterable[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        yield module
