"""Operations on jobs: list, look, act, wait."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Callable, TypeVar

from muster.errors import NotFound, UnexpectedAnswer
from muster.http.call import PAGE_SIZE, Call, Page, get, given, page, page_size
from muster.http.session import Session
from muster.jobs import calls
from muster.jobs.calls import JobRef, no_job
from muster.jobs.follow import too_late, wait_pause
from muster.jobs.models import ClusterEvents, Event, FoundLine, Job, Rank, Series
from muster.jobs.models_jobs import Acted, Attempt, Checkpoint, JobField, Plan, Replica
from muster.jobs.models_waiting import PriorityEffect

T = TypeVar("T")

MOST_FOUND = 1000  # lines in one answer of a search
MOST_AT_ONCE = 100  # jobs in one bulk call; more go in several


class Jobs(Session):
    def jobs(
        self,
        *,
        phase: str | None = None,
        queue: str | None = None,
        name: str | None = None,
        team: str | None = None,
        user: str | None = None,
        kind: str | None = None,
        image: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Job]:
        """List jobs, newest first; `phase` is one, several separated by commas, or `active` or `finished`.

        `kind` is how their newest attempt failed (docs/verdicts.md), `image` a part of the name of their image.
        """
        asked: dict[str, Any] = {"phase": phase, "queue": queue, "name": name, "team": team, "user": user, "kind": kind}
        asked["image"] = image
        return self._items(page("/jobs", parse=Job.parse, **asked, limit=page_size(limit)), limit=limit)

    async def job(self, ref: JobRef) -> Job:
        """Return the job by id, or the newest one of that name, with all details of one job. Raises NotFound."""
        return await self._of_job(ref, call=calls.job)

    async def cancel(self, ref: JobRef, *, now: bool = False) -> Job:
        """End the job for good, with `now` without its grace; returns the job as the request was recorded."""
        body = {"now": True} if now else {}
        return await self._of_job(ref, call=lambda job_id: replace(calls.act(job_id, verb="cancel"), json=body))

    async def suspend(self, ref: JobRef) -> Job:
        """Take the job off its machines until it is resumed."""
        return await self._of_job(ref, call=lambda job_id: calls.act(job_id, verb="suspend"))

    async def resume(self, ref: JobRef) -> Job:
        """Return a suspended job to its queue."""
        return await self._of_job(ref, call=lambda job_id: calls.act(job_id, verb="resume"))

    async def priority_effect(self, ref: JobRef, priority: int) -> PriorityEffect:
        """Return what another priority would do to a job that has not ended, and to others."""
        return await self._of_job(ref, call=lambda job_id: calls.priority_effect(job_id, priority))

    async def set_priority(self, ref: JobRef, priority: int) -> Job:
        """Give a job that has not ended another priority; it keeps its age in the queue."""
        body = {"priority": priority}
        return await self._of_job(ref, call=lambda job_id: replace(calls.act(job_id, verb="priority"), json=body))

    async def attempts(self, ref: JobRef) -> list[Attempt]:
        """Return the launches of the job: when each ran, how it ended, which rank failed first."""
        return await self._parts(ref, "attempts", parse=Attempt.parse)

    async def replicas(self, ref: JobRef, *, attempt: int | None = None) -> list[Replica]:
        """Return the replicas of the newest attempt, or of a given one."""
        return await self._parts(ref, "replicas", parse=Replica.parse, attempt=attempt)

    async def ranks(self, ref: JobRef, *, attempt: int | None = None) -> list[Rank]:
        """Return the ranks of the newest attempt, or of a given one."""
        return await self._parts(ref, "ranks", parse=Rank.parse, attempt=attempt)

    async def events(self, ref: JobRef) -> list[Event]:
        """Return what happened to the job, oldest first."""
        return await self._parts(ref, "events", parse=Event.parse)

    async def cluster_events(self, ref: JobRef, *, attempt: int | None = None) -> ClusterEvents:
        """Return what the cluster itself says of the pods of the newest or a given attempt, read now."""
        return await self._of_job(
            ref,
            call=lambda job_id: get(
                f"/jobs/{job_id}/cluster-events",
                parse=ClusterEvents.parse,
                params=given(attempt=attempt),
                missing=no_job(job_id),
            ),
        )

    async def checkpoints(self, ref: JobRef) -> list[Checkpoint]:
        """Return the job's checkpoints that its agent saw last, the one that it saw first at the end."""
        return await self._parts(ref, "checkpoints", parse=Checkpoint.parse)

    async def metrics(self, ref: JobRef, *, names: Sequence[str] = (), attempt: int | None = None) -> list[Series]:
        """Return what the ranks reported, thinned; of the newest attempt or a given one."""
        params = given(name=list(names) or None, attempt=attempt)
        return await self._of_job(
            ref,
            call=lambda job_id: get(f"/jobs/{job_id}/metrics", parse=_series, params=params, missing=no_job(job_id)),
        )

    async def search_logs(
        self,
        ref: JobRef,
        text: str,
        *,
        rank: int | None = None,
        replica: str | None = None,
        attempt: int | None = None,
        limit: int = 1000,
        regex: bool = False,
    ) -> list[FoundLine]:
        """Return lines that contain `text`, ignoring case; at most `limit`, oldest first.

        `regex`: `text` is a regular expression in RE2's syntax.
        """
        job_id = await self._id(ref)
        path, missing, start = f"/jobs/{job_id}/logs/search", no_job(job_id), ""
        asked = given(text=text, rank=rank, replica=replica, attempt=attempt, regex="true" if regex else None)
        found: list[FoundLine] = []
        while len(found) < limit:
            params = {**asked, "limit": min(limit - len(found), MOST_FOUND), **({"start": start} if start else {})}
            part = await self._send(get(path, parse=dict, params=params, missing=missing))
            if regex and not part.get("regex"):
                raise UnexpectedAnswer(
                    "this server cannot search for regular expressions yet; search for text, or update it"
                )
            found += [FoundLine.parse(line) for line in part["lines"]]
            start = part.get("next") or ""
            if not start:
                break
        return found

    async def plan(self, spec: Mapping[str, Any]) -> Plan:
        """Return what a submission (see `muster.job_spec`) would become, without submitting it.

        Raises Invalid as submit would.
        """
        return await self._send(Call("POST", "/plans", Plan.parse, json=dict(spec), is_repeatable=True))

    async def job_fields(self) -> list[JobField]:
        """Return the fields of a job that this server knows, more or fewer than this client has options for."""
        return await self._whole(page("/job-fields", parse=JobField.parse))

    async def act_on_many(self, verb: str, jobs: Sequence[JobRef], *, now: bool = False) -> list[Acted]:
        """Act on many jobs; `verb` is cancel, suspend or resume. `now` applies to cancel only.

        A refused job does not stop the others.
        """
        done: list[Acted] = []
        ids = [await self._id(ref) for ref in jobs]
        for begin in range(0, len(ids), MOST_AT_ONCE):
            body = {"act": verb, "ids": ids[begin : begin + MOST_AT_ONCE], **({"now": True} if now else {})}
            done += await self._send(Call("POST", "/jobs/bulk", _acted, json=body))
        return done

    async def resubmit(self, ref: JobRef, *, idempotency_key: str | None = None) -> Job:
        """Submit a new job like this one; with a key, at most one however often it is requested."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        call = calls.act(await self._id(ref), verb="resubmit")
        return await self._send(replace(call, headers=headers, is_repeatable=bool(idempotency_key)))

    async def delete_log(self, ref: JobRef) -> Job:
        """Free the space of a finished job's log; its history and metrics stay."""
        return await self._of_job(ref, call=lambda job_id: calls.act(job_id, verb="delete-log"))

    async def wait(self, job: JobRef, *, timeout: float | None = None) -> Job:
        """Return the job once it has ended or is suspended.

        Raises WaitTimeout after `timeout` seconds; the job goes on.
        """
        began = time.monotonic()
        look = calls.patient(calls.job(await self._id(job)))
        while not ((seen := await self._send(look)).is_finished or seen.is_suspended):
            waited = time.monotonic() - began
            if timeout is not None and waited >= timeout:
                raise too_late(seen, timeout=timeout)
            await self._port.sleep(wait_pause(waited, timeout=timeout))
        return seen

    async def schema(self) -> dict[str, Any]:
        """Return the API's own description (OpenAPI)."""
        return await self._send(get("/schema", parse=dict, params={"format": "json"}))

    async def _id(self, ref: JobRef) -> int:
        """Return the job's id; queries the server only for a name. Raises NotFound."""
        if isinstance(ref, Job):
            return ref.id
        if isinstance(ref, int) or ref.isdigit():
            return int(ref)
        newest = await self._send(page("/jobs", parse=Job.parse, name=ref, limit=PAGE_SIZE))
        named = [item.id for item in newest.items if item.name == ref]
        if not named:
            raise NotFound(404, detail=f"no job named {ref} that you may see", hint="`muster jobs` lists them")
        return max(named)

    async def _of_job(self, ref: JobRef, *, call: Callable[[int], Call[T]]) -> T:
        """Make one call about a job that may be given by name."""
        return await self._send(call(await self._id(ref)))

    async def _parts(self, ref: JobRef, name: str, *, parse: Callable[[Any], T], **params: Any) -> list[T]:
        """Return all items of a list that belongs to a job."""
        job_id = await self._id(ref)
        return await self._whole(_part(job_id, name, parse=parse, **params))


def _series(answer: Mapping[str, Any]) -> list[Series]:
    return [Series.parse(item) for item in answer["series"]]


def _acted(answer: Mapping[str, Any]) -> list[Acted]:
    return [Acted.parse(item) for item in answer["results"]]


def _part(job_id: int, name: str, *, parse: Callable[[Any], T], **params: Any) -> Call[Page[T]]:
    return page(f"/jobs/{job_id}/{name}", parse=parse, missing=no_job(job_id), **params)
