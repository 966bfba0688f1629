"""Requests about jobs and queues; for calls see `muster.http.call`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Callable, TypeVar, Union

from muster.errors import NotFound
from muster.http.call import PAGE_SIZE, Call, Flow, Page, ask, whole
from muster.http.call import get as _get
from muster.http.call import given as _given
from muster.http.call import page as _page
from muster.http.model import Json
from muster.jobs.models import Job, Login, LogPage, Me, Queue, Series, Workspace

T = TypeVar("T")
JobRef = Union[Job, int, str]

LONG_POLL_SECONDS = 10
PATIENCE_SECONDS = 300.0  # a server upgrade takes less


def login(
    username: str,
    *,
    password: str,
    name: str,
    code: str | None = None,
    scope: str | None = None,
    expires_in_days: int | None = None,
) -> Call[Login]:
    body = {"username": username, "password": password, "name": name}
    body.update(_given(code=code, scope=scope, expires_in_days=expires_in_days))
    return Call("POST", "/login", Login.parse, json=body, is_public=True)


def me() -> Call[Me]:
    return _get("/me", parse=Me.parse)


def queues() -> Call[Page[Queue]]:
    return _page("/queues", parse=Queue.parse)


def jobs(
    *,
    phase: str | None = None,
    queue: str | None = None,
    name: str | None = None,
    team: str | None = None,
    user: str | None = None,
    kind: str | None = None,
    limit: int | None = None,
) -> Call[Page[Job]]:
    """List jobs, newest first; `phase` is one, several separated by commas, or `active` or `finished`.

    `kind` is how their newest attempt failed (docs/verdicts.md).
    """
    return _page(
        "/jobs", parse=Job.parse, phase=phase, queue=queue, name=name, team=team, user=user, kind=kind, limit=limit
    )


def job(job_id: int) -> Call[Job]:
    return _get(f"/jobs/{job_id}", parse=Job.parse, missing=no_job(job_id))


def act(job_id: int, *, verb: str) -> Call[Job]:
    """Act on a job; `verb` is cancel, suspend, resume or resubmit."""
    return Call("POST", f"/jobs/{job_id}/{verb}", Job.parse, json={}, missing=no_job(job_id))


def metrics(job_id: int, *, names: Sequence[str] = (), attempt: int | None = None) -> Call[list[Series]]:
    def parse(answer: Json) -> list[Series]:
        return [Series.parse(item) for item in answer["series"]]

    params = _given(name=list(names) or None, attempt=attempt)
    return _get(f"/jobs/{job_id}/metrics", parse=parse, params=params, missing=no_job(job_id))


def log_page(
    job_id: int,
    *,
    rank: int | None = None,
    replica: str | None = None,
    attempt: int | None = None,
    tail: int | None = None,
    cursor: str | None = None,
    wait_seconds: int = 0,
) -> Call[LogPage]:
    """Get a page of the log; `rank` -1 is the launcher, `wait_seconds` delays an empty answer until lines come."""
    tail = None if cursor else tail
    params = _given(rank=rank, replica=replica, attempt=attempt, cursor=cursor, tail=tail, wait=wait_seconds or None)
    call = _get(f"/jobs/{job_id}/logs", parse=LogPage.parse, missing=no_job(job_id))
    return replace(call, params=params, wait_seconds=wait_seconds)


def patient(call: Call[T]) -> Call[T]:
    """Return a call that waits out a server restart, so that someone following a job does not lose their place."""
    return replace(call, patience_seconds=PATIENCE_SECONDS)


def create_job(spec: Mapping[str, Any], *, key: str) -> Call[Job]:
    return Call("POST", "/jobs", Job.parse, json=spec, headers={"Idempotency-Key": key}, is_repeatable=True)


def job_spec(command: str | Sequence[str], **options: Any) -> dict[str, Any]:
    """Return the body of a submission: only what was given, so that the server's defaults apply to the rest."""
    words = shlex.split(command) if isinstance(command, str) else [os.fspath(word) for word in command]
    return {"command": words, **_given(**options)}


def find_job(ref: JobRef) -> Flow[Job]:
    """Return the job by id, or the newest one of that name, with all details of one job. Raises NotFound."""
    return (yield from ask(job((yield from find_id(ref)))))


def find_id(ref: JobRef) -> Flow[int]:
    """Return the job's id; queries the server only for a name. Raises NotFound."""
    if isinstance(ref, Job):
        return ref.id
    if isinstance(ref, int) or ref.isdigit():
        return int(ref)
    page = yield from ask(jobs(name=ref, limit=PAGE_SIZE))
    named = [item.id for item in page.items if item.name == ref]
    if not named:
        raise NotFound(404, detail=f"no job named {ref} that you may see", hint="`muster jobs` lists them")
    return max(named)


def of_job(ref: JobRef, *, call: Callable[[int], Call[T]]) -> Flow[T]:
    """Make one call about a job that may be given by name."""
    return (yield from ask(call((yield from find_id(ref)))))


def submit(spec: Mapping[str, Any], *, code: Flow[Workspace] | None, key: str) -> Flow[Job]:
    """Submit a job; `code` are the steps that produce the workspace."""
    if code is not None:
        spec = {**spec, "workspace": (yield from code).id}
    return (yield from ask(create_job(spec, key=key)))


def every(first: Callable[[int], Call[Page[T]]], *, ref: JobRef) -> Flow[list[T]]:
    """Return all items of a list that belongs to a job."""
    return (yield from whole(first((yield from find_id(ref)))))


def no_job(job_id: int) -> str:
    return f"no job {job_id} that you may see: `muster jobs` lists them"
