"""Reading code again: what a job ran, one file of it, what changed between two jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from muster.calls import Call, Flow, JobRef, _page, ask, find_job, whole
from muster.errors import NotFound
from muster.models import Model, _read

FILES_PAGE = 10_000


@dataclass(frozen=True)
class CodeFile(Model):
    path: str
    kind: str = "file"  # or link
    size: int = 0
    digest: str = ""
    executable: bool = False
    target: str = ""  # of a link


@dataclass(frozen=True)
class CodeChange(Model):
    path: str
    before: CodeFile = _read(CodeFile.parse, default=CodeFile(""))
    after: CodeFile = _read(CodeFile.parse, default=CodeFile(""))
    lines: str | None = None  # the hunks of a unified diff
    why: str = ""  # there are none


@dataclass(frozen=True)
class CodeDiff(Model):
    added: tuple[CodeFile, ...] = _read(lambda items: tuple(CodeFile.parse(item) for item in items), default=())
    removed: tuple[CodeFile, ...] = _read(lambda items: tuple(CodeFile.parse(item) for item in items), default=())
    changed: tuple[CodeChange, ...] = _read(lambda items: tuple(CodeChange.parse(item) for item in items), default=())

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.changed)


def files(ref: JobRef) -> Flow[list[CodeFile]]:
    workspace = yield from workspace_of(ref)
    first = _page(f"/workspaces/{workspace}/files", parse=CodeFile.parse, limit=FILES_PAGE)
    return (yield from whole(first))


def file(ref: JobRef, path: str) -> Flow[bytes]:
    workspace = yield from workspace_of(ref)
    call: Call[bytes] = Call("GET", f"/workspaces/{workspace}/files/{quote(path)}", bytes, is_repeatable=True)
    missing = f"the code of this job holds no {path}: `muster code` lists what it holds"
    return (yield from ask(replace(call, missing=missing, is_raw=True)))


def diff(before: JobRef, after: JobRef) -> Flow[CodeDiff]:
    first, second = (yield from workspace_of(before)), (yield from workspace_of(after))
    call: Call[CodeDiff] = Call("GET", f"/workspaces/{first}/diff/{second}", _diff, is_repeatable=True)
    return (yield from ask(call))


def workspace_of(ref: JobRef) -> Flow[int]:
    """Raises NotFound for a job that was submitted without code."""
    job = yield from find_job(ref)
    if job.workspace is None:
        raise NotFound(404, detail=f"job {job.name or job.id} was submitted without code")
    return job.workspace


def _diff(answer: Mapping[str, Any]) -> CodeDiff:
    return CodeDiff.parse(answer)
