"""Read code back: what a job ran, one file of it, what changed between two jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from urllib.parse import quote

from muster.errors import NotFound
from muster.http.call import get, page, page_size
from muster.http.model import Json, Model, each, read, unchanged
from muster.jobs.calls import JobRef
from muster.jobs.models import Workspace
from muster.jobs.operations import Jobs

FILES_PAGE = 10_000


@dataclass(frozen=True)
class CodeFile(Model):
    path: str
    kind: str = "file"  # or link
    size: int = 0
    digest: str = ""
    executable: bool = False
    target: str = ""  # of a link
    raw: Json = unchanged()


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
    raw: Json = unchanged()

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.changed)


class Reading(Jobs):
    def workspaces(self, *, team: str | None = None, limit: int | None = None) -> AsyncIterator[Workspace]:
        """List the code that you sent, newest first; or all that one of your teams sent."""
        first = page("/workspaces", parse=Workspace.parse, team=team, limit=page_size(limit))
        return self._items(first, limit=limit)

    async def workspace(self, workspace_id: int) -> Workspace:
        """Return code that was sent: its digest, its size, when and by which user. Raises NotFound."""
        missing = f"no workspace {workspace_id} that you may see: `muster workspaces` lists them"
        return await self._send(get(f"/workspaces/{workspace_id}", parse=Workspace.parse, missing=missing))

    async def files(self, ref: JobRef) -> list[CodeFile]:
        """Return the files of the job's code, sorted by path."""
        workspace = await self._workspace_of(ref)
        return await self._whole(page(f"/workspaces/{workspace}/files", parse=CodeFile.parse, limit=FILES_PAGE))

    async def file(self, ref: JobRef, path: str) -> bytes:
        """Return one file of the job's code. Raises NotFound."""
        workspace = await self._workspace_of(ref)
        missing = f"the code of this job contains no {path}: `muster files` lists its files"
        call = get(f"/workspaces/{workspace}/files/{quote(path)}", parse=bytes, missing=missing)
        return await self._send(replace(call, is_raw=True))

    async def workspace_diff(self, before: JobRef, after: JobRef) -> CodeDiff:
        """Return what changed in the code from one job to the other."""
        first, second = await self._workspace_of(before), await self._workspace_of(after)
        return await self._send(get(f"/workspaces/{first}/diff/{second}", parse=CodeDiff.parse))

    async def _workspace_of(self, ref: JobRef) -> int:
        """Return the job's workspace. Raises NotFound for a job that was submitted without code."""
        job = await self.job(ref)
        if job.workspace is None:
            raise NotFound(404, detail=f"job {job.name or job.id} was submitted without code")
        return job.workspace
