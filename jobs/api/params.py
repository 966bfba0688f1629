"""Read the parameters of a request: query parameters, names of queues and workspaces. Each error names its field."""

from collections.abc import Iterable
from typing import Any

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from accounts.access import Access
from accounts.models import User
from common.errors import InvalidInput, Problem
from jobs.core.batch import LAUNCHER
from jobs.core.verdict import place
from jobs.logs.segments import LogSource
from jobs.models import Job
from queues.models import Queue
from queues.readable import readable_queues
from workspaces.models import Workspace

from .serializers import SubmitSerializer

NUMBER = 10**9


def query(name: str, kind: type, description: str, *, deprecated: bool = False) -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.QUERY, description=description, deprecated=deprecated)


IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "maxLength": 80},
    OpenApiParameter.HEADER,
    description="the same key with the same request gives the same job; with another request the answer is 409",
)


def access_of(request: Request, job: Job) -> Access:
    """Return the access rights that a stream about this job depends on."""
    session = getattr(request._request, "session", None)
    key = session.session_key if session is not None else None
    return Access.of(user_of(request), session=key, teams=frozenset({job.team_id}))


def user_of(request: Request) -> User:
    assert isinstance(request.user, User)
    return request.user


def number(request: Request, name: str, *, least: int = 0) -> int | None:
    """Return a whole number from the query string, None if it is not given. Raises InvalidInput."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdecimal()) or len(text) > 9:
        raise InvalidInput(Problem(name, text, "must be a whole number"))
    if int(text) < least:
        raise InvalidInput(Problem(name, text, f"must be at least {least}"))
    return int(text)


def flag(request: Request, name: str) -> bool:
    """Return whether the query string says true. Raises InvalidInput for what is neither true nor false."""
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise InvalidInput(Problem(name, text, "must be true or false"))
    return text in ("true", "1")


def attempt_of(request: Request, job: Job) -> int:
    attempt = number(request, "attempt")
    if attempt is not None and attempt > job.attempt:
        raise Http404(f"job {job.name} has had {job.attempt} attempts, not {attempt}")
    return job.attempt if attempt is None else attempt


def source_of(request: Request, job: Job) -> LogSource:
    """Return whose lines are asked for by `rank` and `replica`; everybody's without them. Raises InvalidInput."""
    return LogSource(_rank_of(request, job), _replica_of(request, job))


def _replica_of(request: Request, job: Job) -> tuple[str, int] | None:
    name = request.query_params.get("replica")
    if name is None:
        return None
    if found := place(job.role_views, name):
        return found
    replicas = (
        f"{one.name}-0" + (f" to {one.name}-{one.replicas - 1}" if one.replicas > 1 else "") for one in job.role_views
    )
    raise InvalidInput(Problem("replica", name, f"job {job.name} has {', '.join(replicas)}"))


def _rank_of(request: Request, job: Job) -> int | None:
    """Return a rank that this job has (-1: the launcher), None for all. Raises InvalidInput."""
    rank = number(request, "rank", least=LAUNCHER)
    if rank is None or rank < job.world_size or job.ranks.filter(rank=rank).exists():
        return rank
    ranks = (
        f"has ranks 0 to {job.world_size - 1}"
        if job.world_size
        else "has no such rank yet; -1 is what its replicas print"
    )
    raise InvalidInput(Problem("rank", str(rank), f"job {job.name} {ranks}"))


def description(request: Request) -> tuple[Queue, Workspace | None, dict[str, Any]]:
    """Return a submitted job: its queue, its code, and the remaining fields. Raises InvalidInput for unknown fields."""
    body = SubmitSerializer(data=request.data)
    body.is_valid(raise_exception=True)
    _refuse_unknown(request.data, known=body.fields)
    sent = dict(body.validated_data)
    queue = _queue(user_of(request), sent.pop("queue"))
    return queue, _workspace(queue, sent.pop("workspace", None)), sent


def _refuse_unknown(data: Any, *, known: Iterable[str]) -> None:
    """Raise InvalidInput for unknown fields: a silently ignored misspelling can cost a night of GPUs."""
    unknown = sorted(str(name) for name in set(data) - set(known))
    if unknown:
        words = f"is not a field of a job; known are {', '.join(sorted(known))}"
        raise InvalidInput(*(Problem(name, None, words) for name in unknown))


def _queue(user: User, name: str) -> Queue:
    """Return the user's queue of that name. Raises InvalidInput if the user's teams have none."""
    queue = readable_queues(user).filter(name=name).first()
    if queue is None:
        known = ", ".join(readable_queues(user).order_by("name").values_list("name", flat=True)[:10]) or "none yet"
        raise InvalidInput(Problem("queue", name, f"{name!r} is not a queue of your teams; yours are: {known}"))
    return queue


def _workspace(queue: Queue, pk: int | None) -> Workspace | None:
    if pk is None:
        return None
    found = Workspace.objects.filter(pk=pk, team=queue.team).first()
    if found is None:
        raise InvalidInput(Problem("workspace", pk, f"is not a workspace of team {queue.team}; upload the code first"))
    return found


def sent(serializer: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """Return the fields that were sent, checked. Raises ValidationError, and InvalidInput for one that is not known."""
    body = serializer(data=request.data)
    body.is_valid(raise_exception=True)
    known = sorted(serializer().fields)
    if unknown := sorted(str(name) for name in set(request.data) - set(known)):
        words = f"cannot be set; these can: {', '.join(known)}"
        raise InvalidInput(*(Problem(name, None, words) for name in unknown))
    return dict(body.validated_data)
