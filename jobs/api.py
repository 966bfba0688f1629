"""/api/v1/jobs. Parse, call one service or reader, render."""

import time
from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from accounts.models import User
from controlplane.api import Paging
from controlplane.errors import InvalidInput, Problem
from queues.models import Queue
from workspaces.models import Workspace

from . import logs, metrics, services
from .lifecycle import TERMINAL, Phase
from .models import Job
from .serializers import (
    EventSerializer,
    JobSerializer,
    LogPageSerializer,
    MetricsSerializer,
    RankSerializer,
    ReplicaSerializer,
    SubmitSerializer,
    rank_counts,
)

MAX_WAIT_SECONDS = 20
WAIT_STEP_SECONDS = 0.8


def _query(name: str, kind: type, description: str) -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.QUERY, description=description)


class JobViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Job]):
    queryset = Job.objects.none()
    serializer_class = JobSerializer
    pagination_class = Paging
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Job]:
        found = Job.objects.readable_by(_user(self.request)).select_related("team", "queue", "user")
        return _filtered(found, self.request.query_params) if self.action == "list" else found

    @extend_schema(
        parameters=[
            _query("phase", str, "one or several phases, separated by commas; or active, or finished"),
            _query("queue", str, "a queue's name"),
            _query("name", str, "a job's name"),
        ]
    )
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        page = self.paginate_queryset(self.get_queryset()) or []
        context = {**self.get_serializer_context(), "rank_counts": rank_counts(page), "is_list": True}
        return self.get_paginated_response(JobSerializer(page, many=True, context=context).data)

    @extend_schema(
        request=SubmitSerializer,
        responses={201: JobSerializer, 200: JobSerializer},
        parameters=[
            OpenApiParameter(
                "Idempotency-Key", str, OpenApiParameter.HEADER, description="the same key gives the same job"
            )
        ],
    )
    def create(self, request: Request) -> Response:
        body = SubmitSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        _refuse_unknown(request.data)
        sent = dict(body.validated_data)
        queue = _queue(_user(request), sent.pop("queue"))
        job, is_new = services.submit(
            user=_user(request),
            queue=queue,
            workspace=_workspace(queue, sent.pop("workspace", None)),
            sent=sent,
            idempotency_key=request.headers.get("Idempotency-Key"),
        )
        return self._job(job, 201 if is_new else 200)

    @extend_schema(request=None, responses=JobSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        return self._job(services.cancel(job=self.get_object(), by=_user(request)))

    @extend_schema(request=None, responses=JobSerializer)
    @action(detail=True, methods=["post"])
    def suspend(self, request: Request, pk: str) -> Response:
        return self._job(services.suspend(job=self.get_object(), by=_user(request)))

    @extend_schema(request=None, responses=JobSerializer)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        return self._job(services.resume(job=self.get_object(), by=_user(request)))

    @extend_schema(request=None, responses={201: JobSerializer})
    @action(detail=True, methods=["post"])
    def resubmit(self, request: Request, pk: str) -> Response:
        return self._job(services.resubmit(job=self.get_object(), by=_user(request)), 201)

    @extend_schema(responses=RankSerializer(many=True), parameters=[_query("attempt", int, "default: the newest")])
    @action(detail=True, pagination_class=None)
    def ranks(self, request: Request, pk: str) -> Response:
        job = self.get_object()
        return self._list(RankSerializer, job.ranks.filter(attempt=_attempt(request, job)).select_related("replica"))

    @extend_schema(responses=ReplicaSerializer(many=True), parameters=[_query("attempt", int, "default: the newest")])
    @action(detail=True, pagination_class=None)
    def replicas(self, request: Request, pk: str) -> Response:
        job = self.get_object()
        return self._list(ReplicaSerializer, job.replicas.filter(attempt=_attempt(request, job)))

    @extend_schema(responses=EventSerializer(many=True))
    @action(detail=True, pagination_class=None)
    def events(self, request: Request, pk: str) -> Response:
        return self._list(EventSerializer, self.get_object().events.select_related("user"))

    @extend_schema(
        responses=LogPageSerializer,
        parameters=[
            _query("rank", int, "only this rank; -1 is the launcher"),
            _query("cursor", str, "from an earlier answer"),
            _query("limit", int, "about so many lines"),
            _query("tail", int, "begin with the last so many lines"),
            _query("attempt", int, "only this attempt"),
            _query("wait", int, f"seconds to wait for news, up to {MAX_WAIT_SECONDS}"),
        ],
    )
    @action(detail=True, pagination_class=None)
    def logs(self, request: Request, pk: str) -> Response:
        job = self.get_object()
        asked = {name: _number(request, name) for name in ("rank", "tail", "attempt")}
        limit = _number(request, "limit")
        page = read_or_wait(
            job,
            wait=min(_number(request, "wait") or 0, MAX_WAIT_SECONDS),
            cursor=request.query_params.get("cursor", ""),
            limit=logs.PAGE_LINES if limit is None else limit,
            **asked,
        )
        lines = [
            {
                "rank": line.rank,
                "attempt": line.attempt,
                "at_ms": int(line.at.timestamp() * 1000),
                "text": line.text,
                "is_gap": line.is_gap,
            }
            for line in page.lines
        ]
        return Response({"lines": lines, "cursor": page.cursor, "is_complete": page.is_complete})

    @extend_schema(responses=MetricsSerializer, parameters=[_query("name", str, "only this series; may be repeated")])
    @action(detail=True, pagination_class=None)
    def metrics(self, request: Request, pk: str) -> Response:
        names = request.query_params.getlist("name") or None
        found = metrics.series(job=self.get_object(), names=names)
        points = [
            {
                "name": one.name,
                "rank": one.rank,
                "points": [[int(at.timestamp() * 1000), step, value] for at, step, value in one.points],
            }
            for one in found
        ]
        return Response({"series": points})

    def _job(self, job: Job, status: int = 200) -> Response:
        return Response(JobSerializer(job, context=self.get_serializer_context()).data, status=status)

    def _list(self, serializer: type[BaseSerializer[Any]], rows: QuerySet[Any]) -> Response:
        return Response({"results": serializer(rows, many=True).data, "next": None})


def read_or_wait(job: Job, *, wait: float, **asked: Any) -> logs.LogPage:
    """A page of lines; an empty one is held back until there is news or `wait` seconds are over."""
    until = time.monotonic() + wait
    seen = logs.newest_segment(job)
    page = logs.read(job=job, **asked)
    while not page.lines and not page.is_complete and time.monotonic() < until:
        time.sleep(WAIT_STEP_SECONDS)  # this request's own thread; no transaction is open meanwhile
        job.refresh_from_db(fields=["attempt", "phase", "finished_at"])
        newest = logs.newest_segment(job)
        if newest != seen or job.is_finished:
            seen = newest
            page = logs.read(job=job, **{**asked, "cursor": page.cursor})
    return page


def _user(request: Request) -> User:
    assert isinstance(request.user, User)
    return request.user


def _filtered(jobs: QuerySet[Job], query: Any) -> QuerySet[Job]:
    if phases := query.get("phase"):
        jobs = _by_phase(jobs, phases)
    if queue := query.get("queue"):
        jobs = jobs.filter(queue__name=queue)
    if name := query.get("name"):
        jobs = jobs.filter(name=name)
    return jobs


def _by_phase(jobs: QuerySet[Job], text: str) -> QuerySet[Job]:
    if text == "active":
        return jobs.exclude(phase__in=TERMINAL)
    if text == "finished":
        return jobs.filter(phase__in=TERMINAL)
    phases = text.split(",")
    known = [phase.value for phase in Phase]
    for phase in phases:
        if phase not in known:
            raise InvalidInput(Problem("phase", phase, f"must be one of active, finished, {', '.join(known)}"))
    return jobs.filter(phase__in=phases)


def _refuse_unknown(data: Any) -> None:
    """A misspelt field that is silently dropped costs somebody a night of GPUs."""
    known = SubmitSerializer().fields
    unknown = sorted(str(name) for name in set(data) - set(known))
    if unknown:
        raise InvalidInput(
            *(Problem(name, None, f"is not a field of a job; known are {', '.join(sorted(known))}") for name in unknown)
        )


def _queue(user: User, name: str) -> Queue:
    """The queue, where the user's teams have one of that name."""
    from queues.readable import readable_queues

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


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None or text == "":
        return None
    if not text.lstrip("-").isdecimal() or len(text) > 9:
        raise InvalidInput(Problem(name, text, "must be a whole number"))
    return int(text)


def _attempt(request: Request, job: Job) -> int:
    attempt = _number(request, "attempt")
    if attempt is not None and not 0 <= attempt <= job.attempt:
        raise Http404(f"job {job.name} has had {job.attempt} attempts, not {attempt}")
    return job.attempt if attempt is None else attempt
