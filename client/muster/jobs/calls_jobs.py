"""Requests about jobs beyond `muster.jobs.calls`: attempts, replicas, plans, acts on many jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from muster.errors import UnexpectedAnswer
from muster.http.call import Call, Flow, Page, ask, get, given, page, whole
from muster.jobs.calls import JobRef, act, every, find_id, no_job, of_job
from muster.jobs.calls import metrics as series
from muster.jobs.models import Event, FoundLine, Job, Rank, Series
from muster.jobs.models_jobs import Acted, Attempt, JobField, Plan, Replica

MOST_FOUND = 1000  # lines in one answer of a search
MOST_AT_ONCE = 100  # jobs in one bulk call; more go in several


def cancel(ref: JobRef, *, now: bool = False) -> Flow[Job]:
    """End the job for good, with `now` without its grace; returns the job as the request was recorded."""
    said = {"now": True} if now else {}
    return (yield from of_job(ref, call=lambda job_id: replace(act(job_id, verb="cancel"), json=said)))


def suspend(ref: JobRef) -> Flow[Job]:
    """Take the job off its machines until it is resumed."""
    return (yield from of_job(ref, call=lambda job_id: act(job_id, verb="suspend")))


def resume(ref: JobRef) -> Flow[Job]:
    """Return a suspended job to its queue."""
    return (yield from of_job(ref, call=lambda job_id: act(job_id, verb="resume")))


def attempts(ref: JobRef) -> Flow[list[Attempt]]:
    """Return the launches of the job: when each ran, how it ended, which rank failed first."""
    return (yield from every(lambda job_id: _part(job_id, "attempts", parse=Attempt.parse), ref=ref))


def replicas(ref: JobRef, *, attempt: int | None = None) -> Flow[list[Replica]]:
    """Return the replicas of the newest attempt, or of a given one."""
    return (yield from every(lambda job_id: _part(job_id, "replicas", parse=Replica.parse, attempt=attempt), ref=ref))


def ranks(ref: JobRef, *, attempt: int | None = None) -> Flow[list[Rank]]:
    """Return the ranks of the newest attempt, or of a given one."""
    return (yield from every(lambda job_id: _part(job_id, "ranks", parse=Rank.parse, attempt=attempt), ref=ref))


def events(ref: JobRef) -> Flow[list[Event]]:
    """Return what happened to the job, oldest first."""
    return (yield from every(lambda job_id: _part(job_id, "events", parse=Event.parse), ref=ref))


def metrics(ref: JobRef, *, names: Sequence[str] = (), attempt: int | None = None) -> Flow[list[Series]]:
    """Return what the ranks reported, thinned; of the newest attempt or a given one."""
    return (yield from of_job(ref, call=lambda job_id: series(job_id, names=names, attempt=attempt)))


def search_logs(
    ref: JobRef,
    text: str,
    *,
    rank: int | None = None,
    replica: str | None = None,
    attempt: int | None = None,
    limit: int = 1000,
    regex: bool = False,
) -> Flow[list[FoundLine]]:
    """Return lines that contain `text`, ignoring case; at most `limit`, oldest first.

    `regex`: `text` is a regular expression in RE2's syntax.
    """
    job_id = yield from find_id(ref)
    asked, start = given(text=text, rank=rank, replica=replica, attempt=attempt, regex="true" if regex else None), ""
    found: list[FoundLine] = []
    while len(found) < limit:
        params = {**asked, "limit": min(limit - len(found), MOST_FOUND), **({"start": start} if start else {})}
        part = yield from ask(get(f"/jobs/{job_id}/logs/search", parse=dict, params=params, missing=no_job(job_id)))
        if regex and not part.get("regex"):
            raise UnexpectedAnswer(
                "this server cannot search for regular expressions yet; search for text, or update it"
            )
        found += [FoundLine.parse(line) for line in part["lines"]]
        start = part.get("next") or ""
        if not start:
            break
    return found


def plan(spec: Mapping[str, Any]) -> Flow[Plan]:
    """Return what a submission (see `muster.job_spec`) would become, without submitting it.

    Raises Invalid as submit would.
    """
    return (yield from ask(Call("POST", "/plans", Plan.parse, json=dict(spec), is_repeatable=True)))


def job_fields() -> Flow[list[JobField]]:
    """Return the fields of a job that this server knows, more or fewer than this client has options for."""
    return (yield from whole(page("/job-fields", parse=JobField.parse)))


def act_on_many(verb: str, jobs: Sequence[JobRef], *, now: bool = False) -> Flow[list[Acted]]:
    """Act on many jobs; `verb` is cancel, suspend or resume. `now` applies to cancel only.

    A refused job does not stop the others.
    """
    done: list[Acted] = []
    ids = yield from _ids(jobs)
    for begin in range(0, len(ids), MOST_AT_ONCE):
        body = {"act": verb, "ids": ids[begin : begin + MOST_AT_ONCE], **({"now": True} if now else {})}
        done += yield from ask(Call("POST", "/jobs/bulk", _acted, json=body))
    return done


def delete_log(ref: JobRef) -> Flow[Job]:
    """Free the space of a finished job's log; its history and metrics stay."""
    return (yield from of_job(ref, call=lambda job_id: act(job_id, verb="delete-log")))


def resubmit(ref: JobRef, *, idempotency_key: str | None = None) -> Flow[Job]:
    """Submit a new job like this one; with a key, at most one however often it is requested."""
    job_id = yield from find_id(ref)
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
    call = Call("POST", f"/jobs/{job_id}/resubmit", Job.parse, json={}, headers=headers, missing=no_job(job_id))
    return (yield from ask(replace(call, is_repeatable=bool(idempotency_key))))


def schema() -> Flow[dict[str, Any]]:
    """Return the API's own description (OpenAPI)."""
    return (yield from ask(get("/schema", parse=dict, params={"format": "json"})))


def _ids(jobs: Sequence[JobRef]) -> Flow[list[int]]:
    found: list[int] = []
    for ref in jobs:
        found.append((yield from find_id(ref)))
    return found


def _acted(answer: Mapping[str, Any]) -> list[Acted]:
    return [Acted.parse(item) for item in answer["results"]]


def _part(job_id: int, name: str, *, parse: Any, **params: Any) -> Call[Page[Any]]:
    return page(f"/jobs/{job_id}/{name}", parse=parse, missing=no_job(job_id), **given(**params))
