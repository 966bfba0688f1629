"""The steps that turn a folder into a workspace: only what the server does not have is sent."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any, Callable, NamedTuple

from muster.code import memory as memories
from muster.code.contents import TRIES, Changed, Pack, packs
from muster.code.memory import Entries, Entry, Memory
from muster.code.workspace import File, Tree, walk
from muster.errors import Invalid, WorkspaceError
from muster.http.call import Call, Flow, Work, ask
from muster.http.model import Json
from muster.jobs.models import Workspace

Progress = Callable[[int, int], None]  # bytes of files sent, and to be sent

ASK_BYTES = 64 << 20  # before reading more than this, ask whether the server would accept it
EAGER_BYTES = 256 << 10  # new files are sent without asking up to this size, which saves a request
ROUNDS = 5
GZIP_BYTES = 1024  # shorter bodies gain nothing


class Missing(NamedTuple):
    digests: tuple[str, ...]


class Offer(NamedTuple):
    """The description of a workspace: entries over those of a base, without what was removed."""

    queue: str | None
    base: int | None
    put: list[Entry]
    remove: list[str]
    digest: str  # of the result: a different server at this address may have another workspace with the base's id


def upload(
    directory: str | os.PathLike[str], *, url: str, queue: str | None, progress: Progress | None = None
) -> Flow[Workspace]:
    """Send a folder; if a file changes meanwhile the folder is scanned again, three times in all."""
    memory: Memory = yield Work(lambda: memories.load(url, root=os.path.realpath(directory)))
    for tried in range(1, TRIES + 1):
        try:
            return (yield from _upload(directory, memory=memory, queue=queue, progress=progress))
        except Changed as changed:
            memory.digests.pop(changed.path, None)
            if tried == TRIES:
                raise
    raise AssertionError("not reached")


def _upload(
    directory: str | os.PathLike[str], *, memory: Memory, queue: str | None, progress: Progress | None
) -> Flow[Workspace]:
    tree: Tree = yield Work(lambda: walk(directory))
    if tree.size_bytes > ASK_BYTES:
        yield from _ask_for_room(tree, queue=queue)
    entries: Entries = yield Work(lambda: memory.entries(tree))
    found = yield from _offer_changes(tree, entries, memory=memory, queue=queue, progress=progress)
    yield Work(lambda: memory.save(found.id, entries=entries))
    return found


def _ask_for_room(tree: Tree, *, queue: str | None) -> Flow[None]:
    try:
        yield from ask(missing((), queue=queue, size_bytes=tree.size_bytes))
    except Invalid as error:
        raise WorkspaceError(f"{error}; the largest files are {tree.largest()}") from error


def _offer_changes(
    tree: Tree, entries: Entries, *, memory: Memory, queue: str | None, progress: Progress | None
) -> Flow[Workspace]:
    sender = _Sender(tree, entries, queue=queue, progress=progress)
    try:
        return (yield from _offer(sender, _difference(entries, memory=memory, queue=queue), known=memory.sent))
    except Invalid as error:
        if memory.workspace is None or not {"base", "remove", "digest"} & {one.field for one in error.problems}:
            raise _with_names(error, tree) from error
    memory.forget()
    return (yield from _offer(sender, Offer(queue, None, list(entries.values()), [], digest_of(entries)), known={}))


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


def _offer(sender: _Sender, offer: Offer, *, known: Entries) -> Flow[Workspace]:
    """Send files first where they are surely needed, otherwise the list, until nothing is missing."""
    had = {entry.get("digest") for entry in known.values()}
    wanted = {entry["digest"]: entry["size"] for entry in offer.put if entry["kind"] == "file"}
    fresh = [digest for digest in wanted if digest not in had]
    if offer.base is None and fresh:
        fresh = list((yield from ask(missing(fresh, queue=offer.queue))).digests)
    elif sum(wanted[digest] for digest in fresh) > EAGER_BYTES:
        fresh = []
    for _ in range(ROUNDS):
        yield from sender.send(fresh)
        answer = yield from ask(create(offer))
        if isinstance(answer, Workspace):
            return answer
        fresh = list(answer.digests)
    raise WorkspaceError("the server does not keep the files it was sent: tell its administrator")


class _Sender:
    """Send files by their digests, and report progress."""

    def __init__(self, tree: Tree, entries: Entries, *, queue: str | None, progress: Progress | None) -> None:
        self._by_digest = {entries[file.path]["digest"]: file for file in tree.files}
        self._entries, self._queue = entries, queue
        self._progress = progress

    def send(self, digests: Iterable[str]) -> Flow[None]:
        files = [self._by_digest[digest] for digest in digests if digest in self._by_digest]
        total, done = sum(file.seen.size for file in files), 0
        following = packs(sorted(files, key=_path), digest_of=lambda path: str(self._entries[path]["digest"]))
        while (pack := (yield Work(lambda: next(following, None)))) is not None:
            yield from ask(send_pack(pack, queue=self._queue, on_sent=self._telling(done, pack.plain_bytes, total)))
            done += pack.plain_bytes

    def _telling(self, done: int, size: int, total: int) -> Callable[[float], None] | None:
        progress = self._progress
        if progress is None:
            return None
        return lambda share: progress(done + int(size * share), total)


def _path(file: File) -> str:
    return file.path


def _with_names(error: Invalid, tree: Tree) -> Exception:
    """Add the largest files to a size error, which shows the user what takes the space."""
    is_size = any(one.field in ("size_bytes", "body") for one in error.problems)
    return WorkspaceError(f"{error}; the largest files are {tree.largest()}") if is_size else error


def missing(digests: Iterable[str], *, queue: str | None, size_bytes: int | None = None) -> Call[Missing]:
    body = {"queue": queue, "digests": list(digests), "size_bytes": size_bytes}
    return _post("/workspaces/missing", body, parse=lambda answer: Missing(tuple(answer["missing"])))


def create(offer: Offer) -> Call[Workspace | Missing]:
    """Create a workspace. Content-addressed: the server answers a repeated request with the first one's workspace."""

    def parse(answer: Json) -> Workspace | Missing:
        return Missing(tuple(answer["missing"])) if "missing" in answer else Workspace.parse(answer)

    body = {"queue": offer.queue, "base": offer.base, "set": offer.put, "remove": offer.remove, "digest": offer.digest}
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
