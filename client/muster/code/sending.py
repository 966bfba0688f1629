"""Turn a folder into a workspace, and a command into a job: only what the server does not have is sent."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from muster.code import memory as memories
from muster.code.contents import TRIES, Changed, Pack, packs
from muster.code.memory import Entries, Entry, Memory
from muster.code.program import check_is_sent
from muster.code.workspace import File, LeftOut, Tree, walk
from muster.errors import Invalid, WorkspaceError
from muster.http.call import Call
from muster.http.model import Json
from muster.jobs import calls
from muster.jobs.models import Job, Workspace
from muster.jobs.operations import Jobs

Progress = Callable[[int, int], None]  # bytes of files sent, and to be sent
# Called with what a folder contains before anything of it is sent, and with what was sent of it last, in bytes, where a
# new release would send more than twice as much. An error that it raises ends the submission.
Scanned = Callable[[Tree, Optional[int]], None]

ASK_BYTES = 64 << 20  # before reading more than this, ask whether the server would accept it
EAGER_BYTES = 256 << 10  # new files are sent without asking up to this size, which saves a request
ROUNDS = 5
MOST_LEFT_OUT = 50  # of what was ignored, the largest, for the code's page
GZIP_BYTES = 1024  # shorter bodies gain nothing


class MissingDigests(NamedTuple):
    digests: tuple[str, ...]


class Offer(NamedTuple):
    """The description of a workspace: entries over those of a base, without what was removed."""

    queue: str | None
    base: int | None
    put: list[Entry]
    remove: list[str]
    digest: str  # of the result: a different server at this address may have another workspace with the base's id
    left_out: tuple[LeftOut, ...] = ()


class _Folder(NamedTuple):
    """A scanned folder, and how to send it."""

    tree: Tree
    entries: Entries
    queue: str | None
    progress: Progress | None
    left_out: tuple[LeftOut, ...]


class Sending(Jobs):
    async def submit(
        self,
        command: str | Sequence[str],
        *,
        queue: str,
        directory: str | os.PathLike[str] | None = ".",
        workspace: int | None = None,
        nodes: int | None = None,
        min_nodes: int | None = None,
        nproc_per_node: int | None = None,
        gpus: int | None = None,
        name: str | None = None,
        framework: str | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        volumes: Sequence[str] | None = None,
        notify: Sequence[str] | None = None,
        grace_seconds: int | None = None,
        start_timeout_seconds: int | None = None,
        max_retries: int | None = None,
        priority: int | None = None,
        deadline_seconds: int | None = None,
        fields: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        progress: Progress | None = None,
        scanned: Scanned | None = None,
    ) -> Job:
        """Send what is new in the folder, then submit.

        `directory=None` sends no code, `workspace` is the id of one uploaded before; `progress` is called with the
        bytes sent and the bytes in total, `scanned` with what the folder contains before anything is sent. The server
        decides what is not given. The same `idempotency_key` never makes a second job. `fields` are further fields of
        the job that this server knows (`job_fields()`), by name.
        """
        spec = calls.job_spec(
            command,
            queue=queue,
            workspace=workspace,
            nodes=nodes,
            min_nodes=min_nodes,
            nproc_per_node=nproc_per_node,
            gpus=gpus,
            name=name,
            framework=framework,
            env=env,
            secrets=secrets,
            volumes=volumes,
            notify=notify,
            grace_seconds=grace_seconds,
            start_timeout_seconds=start_timeout_seconds,
            max_retries=max_retries,
            priority=priority,
            deadline_seconds=deadline_seconds,
            **(fields or {}),
        )
        if directory is not None and workspace is None:

            def looked(tree: Tree, before: int | None) -> None:
                check_is_sent(command, tree=tree)
                if scanned is not None:
                    scanned(tree, before)

            sent = await self.upload(directory or "", queue=queue, progress=progress, scanned=looked)
            spec["workspace"] = sent.id
        return await self._send(calls.create_job(spec, key=idempotency_key or str(uuid.uuid4())))

    async def upload(
        self,
        directory: str | os.PathLike[str],
        *,
        queue: str | None = None,
        progress: Progress | None = None,
        scanned: Scanned | None = None,
    ) -> Workspace:
        """Send a folder for later jobs; name the queue they will go to if you belong to several teams."""
        # If a file changes meanwhile, the folder is scanned again.
        memory = await self._port.work(lambda: memories.load(self.url, root=os.path.realpath(directory)))
        for tried in range(1, TRIES + 1):
            try:
                tree = await self._port.work(lambda: walk(directory))
                if scanned is not None and tried == 1:
                    scanned(tree, memory.grown_from(tree.size_bytes))
                return await self._upload(tree, memory=memory, queue=queue, progress=progress)
            except Changed as changed:
                memory.digests.pop(changed.path, None)
                if tried == TRIES:
                    raise
        raise AssertionError("not reached")

    async def _upload(self, tree: Tree, *, memory: Memory, queue: str | None, progress: Progress | None) -> Workspace:
        if tree.size_bytes > ASK_BYTES:
            await self._ask_for_room(tree, queue=queue)
        entries = await self._port.work(lambda: memory.entries(tree))
        found = await self._offer_changes(
            _Folder(tree, entries, queue=queue, progress=progress, left_out=tree.left_out[:MOST_LEFT_OUT]),
            memory=memory,
        )
        await self._port.work(lambda: memory.save(found.id, entries=entries))
        return found

    async def _ask_for_room(self, tree: Tree, *, queue: str | None) -> None:
        try:
            await self._send(missing((), queue=queue, size_bytes=tree.size_bytes))
        except Invalid as error:
            raise WorkspaceError(f"{error}; the largest files are {tree.largest()}") from error

    async def _offer_changes(self, folder: _Folder, *, memory: Memory) -> Workspace:
        try:
            difference = _difference(folder.entries, memory=memory, queue=folder.queue)
            return await self._offer(difference, folder=folder, known=memory.sent)
        except Invalid as error:
            if memory.workspace is None or not {"base", "remove", "digest"} & {one.field for one in error.problems}:
                raise _with_names(error, folder.tree) from error
        memory.forget()
        everything = Offer(folder.queue, None, list(folder.entries.values()), [], digest_of(folder.entries))
        return await self._offer(everything, folder=folder, known={})

    async def _offer(self, offer: Offer, *, folder: _Folder, known: Entries) -> Workspace:
        """Send files first where they are surely needed, otherwise the list, until nothing is missing."""
        had = {entry.get("digest") for entry in known.values()}
        wanted = {entry["digest"]: entry["size"] for entry in offer.put if entry["kind"] == "file"}
        fresh = [digest for digest in wanted if digest not in had]
        if offer.base is None and fresh:
            fresh = list((await self._send(missing(fresh, queue=offer.queue))).digests)
        elif sum(wanted[digest] for digest in fresh) > EAGER_BYTES:
            fresh = []
        for _ in range(ROUNDS):
            await self._send_files(fresh, folder=folder)
            answer = await self._offered(offer, left_out=folder.left_out)
            if isinstance(answer, Workspace):
                return answer
            fresh = list(answer.digests)
        raise WorkspaceError("the server does not keep the files it was sent: tell its administrator")

    async def _offered(self, offer: Offer, *, left_out: tuple[LeftOut, ...]) -> Workspace | MissingDigests:
        try:
            return await self._send(create(offer._replace(left_out=left_out)))
        except Invalid as error:
            # A server of an older release does not know the field.
            if not left_out or "left_out" not in {one.field for one in error.problems}:
                raise
        return await self._send(create(offer))

    async def _send_files(self, digests: Iterable[str], *, folder: _Folder) -> None:
        """Send files by their digests, and report progress."""
        by_digest = {folder.entries[file.path]["digest"]: file for file in folder.tree.files}
        files = sorted((by_digest[digest] for digest in digests if digest in by_digest), key=_path)
        total, done = sum(file.seen.size for file in files), 0
        following = packs(files, digest_of=lambda path: str(folder.entries[path]["digest"]))
        while (pack := await self._port.work(lambda: next(following, None))) is not None:
            on_sent = _reporter(folder.progress, done=done, size=pack.plain_bytes, total=total)
            await self._send(send_pack(pack, queue=folder.queue, on_sent=on_sent))
            done += pack.plain_bytes


def _difference(entries: Entries, *, memory: Memory, queue: str | None) -> Offer:
    put = [entry for path, entry in entries.items() if memory.sent.get(path) != entry]
    removed = [path for path in memory.sent if path not in entries]
    return Offer(queue, memory.workspace, put, removed, digest_of(entries))


def digest_of(entries: Entries) -> str:
    """Return the workspace's digest: that of its canonical list (docs/wire.md, section 4)."""
    lines = ["muster workspace 1\n"]
    for path, entry in sorted(entries.items()):
        if entry["kind"] == "link":
            lines.append(f"l\t{entry['target']}\t{path}\n")
        else:
            lines.append(f"{'x' if entry.get('executable') else 'f'}\t{entry['size']}\t{entry['digest']}\t{path}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _reporter(progress: Progress | None, *, done: int, size: int, total: int) -> Callable[[float], None] | None:
    if progress is None:
        return None
    return lambda share: progress(done + int(size * share), total)


def _path(file: File) -> str:
    return file.path


def _with_names(error: Invalid, tree: Tree) -> Exception:
    """Add the largest files to a size error, which shows the user what takes the space."""
    is_size = any(one.field in ("size_bytes", "body") for one in error.problems)
    return WorkspaceError(f"{error}; the largest files are {tree.largest()}") if is_size else error


def missing(digests: Iterable[str], *, queue: str | None, size_bytes: int | None = None) -> Call[MissingDigests]:
    body = {"queue": queue, "digests": list(digests), "size_bytes": size_bytes}
    return _post("/workspaces/missing", body, parse=lambda answer: MissingDigests(tuple(answer["missing"])))


def create(offer: Offer) -> Call[Workspace | MissingDigests]:
    """Create a workspace. Content-addressed: the server answers a repeated request with the first one's workspace."""

    def parse(answer: Json) -> Workspace | MissingDigests:
        return MissingDigests(tuple(answer["missing"])) if "missing" in answer else Workspace.parse(answer)

    left_out = [{**one._asdict(), "path": one.path[:1024]} for one in offer.left_out] or None
    body: dict[str, Any] = {
        "queue": offer.queue, "base": offer.base, "set": offer.put, "remove": offer.remove, "digest": offer.digest,
        "left_out": left_out,
    }  # fmt: skip
    return _post("/workspaces", body, parse=parse, accepted=(409,))


def send_pack(pack: Pack, *, queue: str | None, on_sent: Callable[[float], None] | None) -> Call[None]:
    return Call(
        "POST",
        "/workspaces/files",
        lambda answer: None,
        params={"queue": queue} if queue else {},
        content=pack.content,
        headers={"Content-Type": "application/x-muster-pack"},
        is_repeatable=True,
        on_sent=on_sent,
    )


def _post(path: str, body: dict[str, Any], **options: Any) -> Call[Any]:
    given = {name: value for name, value in body.items() if value is not None}
    text = json.dumps(given, separators=(",", ":")).encode()
    headers = {"Content-Type": "application/json"}
    if len(text) > GZIP_BYTES:
        text, headers = gzip.compress(text, 6, mtime=0), {**headers, "Content-Encoding": "gzip"}
    return Call("POST", path, content=text, headers=headers, is_repeatable=True, **options)
