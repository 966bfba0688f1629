"""The requests of the REST API (/api/v1) and how their answers are read, without any I/O.

A `Call` is one request. A *flow* is a generator that yields calls, is sent their answers, and returns a result: so the
steps of `submit`, for example, are written once for the sync and the async client.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Generic, TypeVar, Union
from urllib.parse import parse_qsl, urlsplit

from muster.errors import NotFound
from muster.models import Event, Job, Json, Login, LogPage, Me, Queue, Rank, Series, Workspace

T = TypeVar("T")
JobRef = Union[Job, int, str]
Flow = Generator[Union["Call[Any]", "Work[Any]"], Any, T]

PAGE_SIZE = 100
LONG_POLL_SECONDS = 10


@dataclass(frozen=True)
class Call(Generic[T]):
    method: str
    path: str
    parse: Callable[[Any], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_public: bool = False  # sent without a token
    is_repeatable: bool = False  # doing it twice is doing it once, so it may be tried again
    wait_seconds: float = 0  # how long the server may hold the answer back, on top of the usual time limit
    tries: int = 5
    missing: str = ""  # what a 404 means here, with the way out
    accepted: tuple[int, ...] = ()  # statuses that are an answer too, and no error
    is_raw: bool = False  # the answer is given to `parse` as bytes
    on_sent: Callable[[float], None] | None = None  # told which share of the content is on its way


@dataclass(frozen=True)
class Work(Generic[T]):
    """A step that reads this machine's disk: done at once, or in a thread where others must not wait for it."""

    run: Callable[[], T]


@dataclass(frozen=True)
class Page(Generic[T]):
    items: tuple[T, ...]
    next: Call[Page[T]] | None


def login(username: str, *, password: str, name: str) -> Call[Login]:
    body = {"username": username, "password": password, "name": name}
    return Call("POST", "/login", Login.parse, json=body, is_public=True)


def me() -> Call[Me]:
    return _get("/me", parse=Me.parse)


def queues() -> Call[Page[Queue]]:
    return _page("/queues", parse=Queue.parse)


def jobs(*, phase: str | None, queue: str | None, name: str | None, limit: int) -> Call[Page[Job]]:
    return _page("/jobs", parse=Job.parse, phase=phase, queue=queue, name=name, limit=limit)


def job(job_id: int) -> Call[Job]:
    return _get(f"/jobs/{job_id}", parse=Job.parse, missing=_no_job(job_id))


def act(job_id: int, *, verb: str) -> Call[Job]:
    """`verb` is cancel, suspend, resume or resubmit."""
    return Call("POST", f"/jobs/{job_id}/{verb}", Job.parse, json={}, missing=_no_job(job_id))


def ranks(job_id: int) -> Call[Page[Rank]]:
    return replace(_page(f"/jobs/{job_id}/ranks", parse=Rank.parse), missing=_no_job(job_id))


def events(job_id: int) -> Call[Page[Event]]:
    return replace(_page(f"/jobs/{job_id}/events", parse=Event.parse), missing=_no_job(job_id))


def metrics(job_id: int) -> Call[list[Series]]:
    def parse(answer: Json) -> list[Series]:
        return [Series.parse(item) for item in answer["series"]]

    return _get(f"/jobs/{job_id}/metrics", parse=parse, missing=_no_job(job_id))


def log_page(
    job_id: int, *, rank: int | None, tail: int | None, cursor: str | None, wait_seconds: int
) -> Call[LogPage]:
    params = _given(rank=rank, cursor=cursor, tail=None if cursor else tail, wait=wait_seconds or None)
    # A person who follows a job would rather wait out a restart of the server than lose the place: about a minute.
    tries = 12 if wait_seconds else 5
    call = _get(f"/jobs/{job_id}/logs", parse=LogPage.parse, missing=_no_job(job_id))
    return replace(call, params=params, wait_seconds=wait_seconds, tries=tries)


def create_job(spec: Mapping[str, Any], *, key: str) -> Call[Job]:
    return Call("POST", "/jobs", Job.parse, json=spec, headers={"Idempotency-Key": key}, is_repeatable=True)


def job_spec(command: str | Sequence[str], **options: Any) -> dict[str, Any]:
    """The body of a submission: only what was given, so that the server's defaults apply to the rest."""
    words = shlex.split(command) if isinstance(command, str) else [os.fspath(word) for word in command]
    return {"command": words, **_given(**options)}


def find_job(ref: JobRef) -> Flow[Job]:
    """The job by id, or the newest one of that name. Raises NotFound."""
    if isinstance(ref, Job):
        return (yield from ask(job(ref.id)))
    if isinstance(ref, int) or ref.isdigit():
        return (yield from ask(job(int(ref))))
    page = yield from ask(jobs(phase=None, queue=None, name=ref, limit=PAGE_SIZE))
    named = [item for item in page.items if item.name == ref]
    if not named:
        raise NotFound(404, detail=f"no job named {ref} that you may see", hint="`muster jobs` lists them")
    return max(named, key=lambda item: item.id)


def find_id(ref: JobRef) -> Flow[int]:
    """The job's id; asks the server only for a name."""
    if isinstance(ref, Job):
        return ref.id
    if isinstance(ref, int) or ref.isdigit():
        return int(ref)
    return (yield from find_job(ref)).id


def of_job(ref: JobRef, *, call: Callable[[int], Call[T]]) -> Flow[T]:
    """One call about a job that may be given by name."""
    return (yield from ask(call((yield from find_id(ref)))))


def submit(spec: Mapping[str, Any], *, code: Flow[Workspace] | None, key: str) -> Flow[Job]:
    """`code` are the steps that bring the workspace."""
    if code is not None:
        spec = {**spec, "workspace": (yield from code).id}
    return (yield from ask(create_job(spec, key=key)))


def every(first: Callable[[int], Call[Page[T]]], *, ref: JobRef) -> Flow[list[T]]:
    """All items of a list that belongs to a job."""
    return (yield from whole(first((yield from find_id(ref)))))


def whole(first: Call[Page[T]]) -> Flow[list[T]]:
    """The items of all pages."""
    page = yield from ask(first)
    items = list(page.items)
    while page.next:
        page = yield from ask(page.next)
        items.extend(page.items)
    return items


def ask(call: Call[T]) -> Flow[T]:
    answer: T = yield call
    return answer


def page_size(limit: int | None) -> int:
    return PAGE_SIZE if limit is None else max(1, min(limit, PAGE_SIZE))


def _get(path: str, *, parse: Callable[[Any], T], missing: str = "") -> Call[T]:
    return Call("GET", path, parse, is_repeatable=True, missing=missing)


def _page(path: str, *, parse: Callable[[Any], T], **params: Any) -> Call[Page[T]]:
    def read(answer: Json) -> Page[T]:
        following = answer.get("next")
        # Only the query of `next` is used: a server behind a proxy may not know its own address, and the token
        # must never go to another one.
        query = dict(parse_qsl(urlsplit(following).query)) if following else {}
        items = tuple(parse(item) for item in answer["results"])
        return Page(items, _page(path, parse=parse, **query) if following else None)

    return Call("GET", path, read, _given(**params), is_repeatable=True)


def _no_job(job_id: int) -> str:
    return f"no job {job_id} that you may see: `muster jobs` lists them"


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
