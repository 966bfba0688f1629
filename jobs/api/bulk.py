"""One action on many jobs. Each is its own transaction and has its own result."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from accounts.models import User
from common.errors import Conflict, NotAllowed
from jobs import services
from jobs.models import Job

ACTS: dict[str, Callable[..., Job]] = {
    "cancel": services.cancel,
    "suspend": services.suspend,
    "resume": services.resume,
}


def each(act: str, ids: Iterable[int], *, by: User, is_now: bool = False) -> list[dict[str, Any]]:
    """Return one result per id, in their order; an unreadable job counts as missing.

    `is_now` applies to cancel only.
    """
    wanted = list(dict.fromkeys(ids))
    found = Job.objects.readable_by(by).select_related("team", "queue", "user", "template").in_bulk(wanted)
    service = partial(ACTS[act], is_now=True) if is_now else ACTS[act]
    return [_one(service, pk, found.get(pk), by=by) for pk in wanted]


def _one(service: Callable[..., Job], pk: int, job: Job | None, *, by: User) -> dict[str, Any]:
    if job is None:
        return _result(pk, 404, problem="it does not exist, or you may not see it")
    try:
        return _result(pk, 200, phase=service(job=job, by=by).phase)
    except NotAllowed as error:
        return _result(pk, 403, phase=job.phase, problem=str(error))
    except Conflict as error:
        return _result(pk, 409, phase=job.phase, problem=str(error))


def _result(pk: int, status: int, phase: str | None = None, *, problem: str | None = None) -> dict[str, Any]:
    return {"id": pk, "status": status, "phase": phase, "problem": problem}
