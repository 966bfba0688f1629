"""Read code back: what a job ran, one file of it, what changed between two jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from muster.errors import NotFound
from muster.http.call import Call, Flow, Page, ask, get, page, whole
from muster.http.model import Json, Model, as_sent, each, read
from muster.jobs.calls import JobRef, find_job
from muster.jobs.models import Workspace

FILES_PAGE = 10_000


@dataclass(frozen=True)
class CodeFile(Model):
    path: str
    kind: str = "file"  # or link
    size: int = 0
    digest: str = ""
    executable: bool = False
    target: str = ""  # of a link
    raw: Json = as_sent()


@dataclass(frozen=True)
class CodeChange(Model):
    path: str
    before: CodeFile = read(CodeFile.parse, default=CodeFile(""))
    after: CodeFile = read(CodeFile.parse, default=CodeFile(""))
    lines: str | None = None  # the hunks of a unified diff
    why: str = ""  # reason that there are none


@dataclass(frozen=True)
class CodeDiff(Model):
    added: tuple[CodeFile, ...] = each(CodeFile)
    removed: tuple[CodeFile, ...] = each(CodeFile)
    changed: tuple[CodeChange, ...] = each(CodeChange)
    raw: Json = as_sent()

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.changed)


def workspaces(*, team: str | None = None, limit: int | None = None) -> Call[Page[Workspace]]:
    """List the code that you sent, newest first; or all that one of your teams sent."""
    return page("/workspaces", parse=Workspace.parse, team=team, limit=limit)


def workspace(workspace_id: int) -> Flow[Workspace]:
    """Return code that was sent: its digest, its size, when and by which user. Raises NotFound."""
    missing = f"no workspace {workspace_id} that you may see: `muster workspaces` lists them"
    return (yield from ask(get(f"/workspaces/{workspace_id}", parse=Workspace.parse, missing=missing)))


def files(ref: JobRef) -> Flow[list[CodeFile]]:
    """Return the files of the job's code, sorted by path."""
    workspace = yield from workspace_of(ref)
    first = page(f"/workspaces/{workspace}/files", parse=CodeFile.parse, limit=FILES_PAGE)
    return (yield from whole(first))


def file(ref: JobRef, path: str) -> Flow[bytes]:
    """Return one file of the job's code. Raises NotFound."""
    workspace = yield from workspace_of(ref)
    call: Call[bytes] = Call("GET", f"/workspaces/{workspace}/files/{quote(path)}", bytes, is_repeatable=True)
    missing = f"the code of this job contains no {path}: `muster files` lists its files"
    return (yield from ask(replace(call, missing=missing, is_raw=True)))


def diff(before: JobRef, after: JobRef) -> Flow[CodeDiff]:
    """Return what changed in the code from one job to the other."""
    first, second = (yield from workspace_of(before)), (yield from workspace_of(after))
    call: Call[CodeDiff] = Call("GET", f"/workspaces/{first}/diff/{second}", _diff, is_repeatable=True)
    return (yield from ask(call))


def workspace_of(ref: JobRef) -> Flow[int]:
    """Return the job's workspace. Raises NotFound for a job that was submitted without code."""
    job = yield from find_job(ref)
    if job.workspace is None:
        raise NotFound(404, detail=f"job {job.name or job.id} was submitted without code")
    return job.workspace


def _diff(answer: Mapping[str, Any]) -> CodeDiff:
    return CodeDiff.parse(answer)
