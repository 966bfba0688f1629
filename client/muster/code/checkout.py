"""What git knows of a work tree: which files it tracks, and which it ignores beside those of .gitignore.

git itself is asked where it is installed; otherwise dulwich reads the index and the configuration, and our own rules
(ignore.py) decide about untracked files.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from muster.code.ignore import Rule, rules_of_text
from muster.errors import WorkspaceError

# A repository's own configuration may name a program for this, and nothing of a checkout is run for its list of files.
_GIT = ("git", "-c", "core.fsmonitor=false")
LIST = (*_GIT, "ls-files", "-z")
MOST_RULES_BYTES = 4 << 20


@dataclass(frozen=True)
class Checkout:
    """A work tree. Paths are relative to its top; `base` is that top's own path for the rules.

    `untracked`: what git itself lists of files that it neither tracks nor ignores; None where git cannot be asked.
    Other repositories inside are paths that end in a slash there, and plain paths of `tracked` if they are submodules.
    """

    base: str
    tracked: frozenset[str]
    untracked: frozenset[str] | None
    rules: tuple[Rule, ...]

    @cached_property
    def _folders(self) -> frozenset[str]:
        """All folders that contain something to send."""
        found: set[str] = set()
        for path in (*self.tracked, *(self.untracked or ())):
            parent = path.rstrip("/").rpartition("/")[0]
            while parent and parent not in found:
                found.add(parent)
                parent = parent.rpartition("/")[0]
        return frozenset(found)

    def is_tracked(self, place: str) -> bool:
        return place[len(self.base) :] in self.tracked

    def contains_some_of(self, place: str) -> bool:
        """Return whether git lists a file within this folder, or the repository that it is."""
        path = place[len(self.base) :]
        return path in self._folders or path in self.tracked or f"{path}/" in (self.untracked or ())

    def is_untracked(self, place: str) -> bool | None:
        """Return whether git lists this file although it does not track it; None if git was not asked."""
        return None if self.untracked is None else place[len(self.base) :] in self.untracked


def read(top: Path, *, base: str) -> Checkout | None:
    """Return the work tree with this top; None if git would not take it for one. Raises WorkspaceError."""
    if not (top / ".git").exists():
        return None
    return _by_git(top, base=base) or _by_dulwich(top, base=base)


def _by_git(top: Path, *, base: str) -> Checkout | None:
    """Return None where there is no git, and where it refuses, such as in a folder of another user."""
    tracked = _listed(top, "--cached")
    untracked = _listed(top, "--others", "--exclude-standard") if tracked is not None else None
    if tracked is None or untracked is None:
        return None
    excludes = _output([*_GIT, "config", "--path", "--get", "core.excludesFile"], top=top)
    exclude = _output([*_GIT, "rev-parse", "--git-path", "info/exclude"], top=top)
    files = [Path(os.fsdecode(excludes.rstrip(b"\n"))) if excludes else _default_excludes()]
    files += [top / os.fsdecode(exclude.rstrip(b"\n"))] if exclude else []
    return Checkout(base, tracked, untracked, _rules(files, base=base))


def _listed(top: Path, *words: str) -> frozenset[str] | None:
    found = _output([*LIST, *words], top=top)
    return None if found is None else frozenset(os.fsdecode(path) for path in found.split(b"\0") if path)


def _output(words: list[str], *, top: Path) -> bytes | None:
    # Variables such as GIT_DIR, which git sets for its hooks, would show another repository. Of a partial clone git
    # would fetch what is missing, by a program that the repository's configuration names: no protocol is allowed.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
    env["GIT_ALLOW_PROTOCOL"] = "none"
    try:
        done = subprocess.run(words, cwd=top, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


_KEPT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH")


def _by_dulwich(top: Path, *, base: str) -> Checkout | None:
    from dulwich.errors import NotGitRepository  # 0.2 s that few commands need
    from dulwich.repo import Repo

    try:
        repo = Repo(os.fspath(top))
    except (NotGitRepository, OSError):
        return None
    try:
        tracked = frozenset(os.fsdecode(path) for path in repo.open_index())
        try:
            excludes = Path(os.fsdecode(repo.get_config_stack().get((b"core",), b"excludesFile"))).expanduser()
        except KeyError:
            excludes = _default_excludes()
        exclude = Path(os.fsdecode(repo.commondir()), "info", "exclude")
    except Exception as error:  # whatever a damaged repository makes a parser raise
        message = f"cannot read the repository {top} ({type(error).__name__}: {error})"
        raise WorkspaceError(f"{message}: install git, or send a copy of the folder without .git") from error
    finally:
        repo.close()
    return Checkout(base, tracked, None, _rules([excludes, exclude], base=base))


def _default_excludes() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home, "git", "ignore")


def _rules(files: Iterable[Path], *, base: str) -> tuple[Rule, ...]:
    found: list[Rule] = []
    for path in files:
        try:
            # A repository's own configuration may name a device, or a pipe.
            if path.is_file() and path.stat().st_size <= MOST_RULES_BYTES:
                found += rules_of_text(path.read_text(encoding="utf-8-sig", errors="surrogateescape"), base=base)
        except OSError:
            continue
    return tuple(found)
