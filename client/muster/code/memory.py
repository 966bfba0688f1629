"""What is remembered of a folder between submissions: digests of unchanged files, and what was sent last.

One file per server and folder, in `$MUSTER_CACHE` or else in the user's cache. The last workspace may belong to another
team than the current one: the server reports that, and everything is named again. It is a help and never needed: what
cannot be read or written is treated as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.code.contents import digest
from muster.code.workspace import File, Stat, Tree
from muster.http.disk import replace_file

VERSION = 1
RULES = 2  # which files are sent: since 2 what git tracks is, and what its exclude files name is not
LITTLE_BYTES = 1 << 20  # nobody is asked about less
# A file written after it was read, within one tick of the file system's clock, looks unchanged.
SETTLED_NS = 2_000_000_000
KEPT_SECONDS = 90 * 24 * 3600

Entry = Mapping[str, Any]  # as it is sent
Entries = dict[str, Entry]


@dataclass
class Memory:
    path: Path
    workspace: int | None = None
    sent: Entries = field(default_factory=dict)  # the entries of that workspace
    digests: dict[str, tuple[Stat, str]] = field(default_factory=dict)
    is_older: bool = False  # written by a release that left out what .gitignore names although git tracks it

    began_ns: int = 0  # when the first file was read

    def entries(self, tree: Tree) -> Entries:
        """Return the whole tree as it is sent; reads the files that changed. Raises Changed."""
        self.began_ns = self.began_ns or time.time_ns()
        files = {file.path: _file_entry(file, digest=self._digest(file)) for file in tree.files}
        self.digests = {path: one for path, one in self.digests.items() if path in files}
        links = {link.path: {"path": link.path, "kind": "link", "target": link.target} for link in tree.links}
        return {**files, **links}

    def grown_from(self, size_bytes: int) -> int | None:
        """Return how many bytes were sent last, where a new release would send more than twice as many; else None."""
        before = sum(int(entry.get("size", 0)) for entry in self.sent.values())
        is_much = size_bytes > 2 * before and size_bytes - before > LITTLE_BYTES
        return before if self.is_older and self.workspace is not None and is_much else None

    def forget(self) -> None:
        """Forget the last workspace: the server no longer has it."""
        self.workspace, self.sent = None, {}

    def save(self, workspace: int, *, entries: Entries) -> None:
        self.workspace, self.sent = workspace, entries
        digests = {
            path: one for path, one in self.digests.items() if _is_settled(one[0], now=self.began_ns or time.time_ns())
        }
        content = {
            "version": VERSION,
            "rules": RULES,
            "workspace": workspace,
            "sent": list(entries.values()),
            "digests": digests,
        }
        with contextlib.suppress(OSError):
            replace_file(self.path, text=json.dumps(content, separators=(",", ":")))
            _drop_old(self.path.parent)

    def _digest(self, file: File) -> str:
        seen, known = self.digests.get(file.path, (None, ""))
        if seen != file.seen:
            known = digest(file)
            self.digests[file.path] = file.seen, known
        return known


def load(url: str, *, root: str) -> Memory:
    name = hashlib.sha256(json.dumps([url, root]).encode()).hexdigest()[:32]
    path = cache_folder() / f"{name}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            return Memory(path)
        sent = {entry["path"]: entry for entry in content["sent"]}
        digests = {name: (Stat(*seen), str(known)) for name, (seen, known) in content["digests"].items()}
        return Memory(path, int(content["workspace"]), sent, digests, is_older=content.get("rules") != RULES)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Memory(path)


def cache_folder() -> Path:
    if os.environ.get("MUSTER_CACHE"):
        return Path(os.environ["MUSTER_CACHE"])
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home, "muster", "sent")


def _file_entry(file: File, *, digest: str) -> Entry:
    entry = {"path": file.path, "kind": "file", "size": file.seen.size, "digest": digest}
    return {**entry, "executable": True} if file.is_executable else entry


def _is_settled(seen: Stat, *, now: int) -> bool:
    return max(seen.mtime_ns, seen.ctime_ns) < now - SETTLED_NS


def _drop_old(folder: Path) -> None:
    for path in folder.iterdir():
        if path.stat().st_mtime < time.time() - KEPT_SECONDS:
            path.unlink()
