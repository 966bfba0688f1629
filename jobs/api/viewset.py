"""/api/v1/jobs: submit, list, get, act, and everything that can be read about one job."""

from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from common.errors import InvalidInput, Problem
from common.http.filters import StrictFilters
from common.http.rest import Paging, listed
from common.http.streaming import text_response
from jobs import services
from jobs.analysis import attempts, failures, metrics
from jobs.analysis.progress import progress
from jobs.filters import JobFilters
from jobs.logs import reader, retention, search
from jobs.models import Job
from jobs.scheduling import what_if
from jobs.submission import cluster_events
from queues import rules

from . import bulk
from .log_stream import EventStreamRenderer, TextRenderer, following, found_lines, held, log_page
from .params import IDEMPOTENCY_KEY, access_of, attempt_of, description, flag, number, query, source_of, user_of
from .serializers import (
    AttemptSerializer,
    BulkAct,
    BulkAnswer,
    CancelSerializer,
    CheckpointSerializer,
    ClusterEventsSerializer,
    EventSerializer,
    FoundSerializer,
    JobSerializer,
    LogPageSerializer,
    MetricsSerializer,
    RankSerializer,
    ReplicaSerializer,
    SubmitSerializer,
    rank_counts,
)
from .waiting import PriorityEffectSerializer, PrioritySerializer

MAX_WAIT_SECONDS = 20
RANK = query("rank", int, "only this rank; -1: what no rank printed, such as a launcher or Ray's driver")
REPLICA = query("replica", str, "only this replica, such as worker-0")
TAIL = query("tail", int, "start with this many last lines, up to 10000")
ONLY_ATTEMPT = query("attempt", int, "only this attempt")
OF_ATTEMPT = query("attempt", int, "default: the newest")


class JobViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Job]):
    queryset = Job.objects.none()
    serializer_class = JobSerializer
    pagination_class = Paging
    filter_backends = [StrictFilters]
    filterset_class = JobFilters
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Job]:
        return Job.objects.readable_by(user_of(self.request)).select_related("team", "queue", "user", "template")

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        context = {
            **self.get_serializer_context(),
            "rank_counts": rank_counts(page),
            "failures": failures.of_jobs(page),
            "progress": progress(page),
        }
        return self.get_paginated_response(JobSerializer(page, many=True, context=context).data)

    @extend_schema(
        request=SubmitSerializer, responses={201: JobSerializer, 200: JobSerializer}, parameters=[IDEMPOTENCY_KEY]
    )
    def create(self, request: Request) -> Response:
        queue, workspace, sent = description(request)
        job, is_new = services.submit(
            user=user_of(request),
            queue=queue,
            workspace=workspace,
            sent=sent,
            idempotency_key=request.headers.get("Idempotency-Key"),
        )
        return self._job(job, 201 if is_new else 200)

    @extend_schema(request=CancelSerializer, responses=JobSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Ask the job to end; with `now` it has no grace period, even if it is stopping already."""
        body = CancelSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        is_now = body.validated_data["now"]
        return self._job(services.cancel(job=self.get_object(), by=user_of(request), is_now=is_now))

    @extend_schema(request=None, responses=JobSerializer)
    @action(detail=True, methods=["post"])
    def suspend(self, request: Request, pk: str) -> Response:
        return self._job(services.suspend(job=self.get_object(), by=user_of(request)))

    @extend_schema(request=None, responses=JobSerializer)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        return self._job(services.resume(job=self.get_object(), by=user_of(request)))

    @extend_schema(
        responses=PriorityEffectSerializer,
        parameters=[query("to", int, "the priority; default: the least with which it is the first of its queue")],
    )
    @action(detail=True, pagination_class=None, filter_backends=[])
    def priority(self, request: Request, pk: str) -> Response:
        """What another priority would do to a job that has not ended, and to others."""
        job, asked = self.get_object(), number(request, "to", least=rules.PRIORITIES[0])
        wanted = what_if.priority_to_be_first(job) if asked is None else asked
        if asked is not None and (problems := rules.priority_problems(job.queue, wanted)):
            raise InvalidInput(*(Problem("to", one.value, one.message) for one in problems))
        return Response(PriorityEffectSerializer(what_if.of_priority(job, wanted)).data)

    @extend_schema(request=PrioritySerializer, responses=JobSerializer)
    @priority.mapping.post
    def set_priority(self, request: Request, pk: str) -> Response:
        """Give a job that has not ended another priority. It keeps its age in the queue."""
        body = PrioritySerializer(data=request.data)
        body.is_valid(raise_exception=True)
        return self._job(services.set_priority(job=self.get_object(), by=user_of(request), **body.validated_data))

    @extend_schema(request=None, responses={201: JobSerializer, 200: JobSerializer}, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"])
    def resubmit(self, request: Request, pk: str) -> Response:
        key = request.headers.get("Idempotency-Key")
        job, is_new = services.resubmit(job=self.get_object(), by=user_of(request), idempotency_key=key)
        return self._job(job, 201 if is_new else 200)

    @extend_schema(request=None, responses=JobSerializer)
    @action(detail=True, methods=["post"], url_path="delete-log")
    def delete_log(self, request: Request, pk: str) -> Response:
        """Delete a finished job's log to free its space. Its history, metrics and numbers stay."""
        return self._job(retention.delete_log(job=self.get_object(), by=user_of(request)))

    @extend_schema(request=BulkAct, responses=BulkAnswer)
    @action(detail=False, methods=["post"], pagination_class=None)
    def bulk(self, request: Request) -> Response:
        """One action on many jobs, each by itself: a refusal for one does not affect the others."""
        body = BulkAct(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.validated_data
        found = bulk.each(asked["act"], asked["ids"], by=user_of(request), is_now=asked["now"])
        return Response({"results": found})

    @extend_schema(responses=listed(AttemptSerializer))
    @action(detail=True, pagination_class=None)
    def attempts(self, request: Request, pk: str) -> Response:
        found = attempts.attempts(self.get_object())
        return Response({"results": AttemptSerializer(found, many=True).data, "next": None})

    @extend_schema(responses=listed(RankSerializer), parameters=[OF_ATTEMPT])
    @action(detail=True, pagination_class=None)
    def ranks(self, request: Request, pk: str) -> Response:
        job = self.get_object()
        rows = job.ranks.filter(attempt=attempt_of(request, job)).select_related("replica").defer("error")
        return self._list(RankSerializer, rows)

    @extend_schema(responses=listed(ReplicaSerializer), parameters=[OF_ATTEMPT])
    @action(detail=True, pagination_class=None)
    def replicas(self, request: Request, pk: str) -> Response:
        job = self.get_object()
        return self._list(ReplicaSerializer, job.replicas.filter(attempt=attempt_of(request, job)))

    @extend_schema(responses=listed(EventSerializer))
    @action(detail=True, pagination_class=None)
    def events(self, request: Request, pk: str) -> Response:
        return self._list(EventSerializer, self.get_object().events.select_related("user"))

    @extend_schema(responses=ClusterEventsSerializer, parameters=[OF_ATTEMPT])
    @action(detail=True, pagination_class=None, filter_backends=[], url_path="cluster-events")
    def cluster_events(self, request: Request, pk: str) -> Response:
        """The cluster's own Events about the pods of an attempt, at most 200, the newest first: read from it now."""
        job = self.get_object()
        found = cluster_events.of_attempt(job, attempt_of(request, job))
        return Response(ClusterEventsSerializer(found).data)

    @extend_schema(
        responses=CheckpointSerializer(many=True),
        parameters=[query("limit", int, "size of a page, up to 200"), query("after", str, "from `next` of a page")],
    )
    @action(detail=True, filter_backends=[])
    def checkpoints(self, request: Request, pk: str) -> Response:
        """What is in the job's folder for checkpoints, as its agent last listed it."""
        rows: QuerySet[Any] = self.get_object().checkpoints.all()
        page: list[Any] = self.paginate_queryset(rows) or []
        return self.get_paginated_response(CheckpointSerializer(page, many=True).data)

    @extend_schema(
        responses=LogPageSerializer,
        parameters=[
            RANK,
            REPLICA,
            query("cursor", str, "from an earlier response"),
            query("limit", int, "approximate number of lines"),
            TAIL,
            ONLY_ATTEMPT,
            query(
                "wait",
                int,
                f"seconds to wait for new lines, up to {MAX_WAIT_SECONDS}; use logs/stream",
                deprecated=True,
            ),
        ],
    )
    @action(detail=True, pagination_class=None)
    def logs(self, request: Request, pk: str) -> HttpResponseBase:
        job = self.get_object()
        limit = number(request, "limit", least=1)
        wait = min(number(request, "wait") or 0, MAX_WAIT_SECONDS)
        asked: dict[str, Any] = {"limit": reader.PAGE_LINES if limit is None else limit, **_lines_asked(request, job)}
        page = reader.read(job=job, cursor=request.query_params.get("cursor", ""), **asked)
        if wait and not page.lines and not page.is_complete:
            return held(job, access=access_of(request, job), page=page, wait=wait, **asked)
        return Response(log_page(page))

    @extend_schema(
        responses={(200, "text/event-stream"): OpenApiTypes.STR},
        parameters=[
            RANK,
            REPLICA,
            query("cursor", str, "from an earlier response; the header Last-Event-ID does the same"),
            TAIL,
            ONLY_ATTEMPT,
        ],
    )
    @action(
        detail=True, pagination_class=None, url_path="logs/stream", renderer_classes=[EventStreamRenderer, JSONRenderer]
    )
    def logs_stream(self, request: Request, pk: str) -> StreamingHttpResponse:
        """Lines as they arrive, as server-sent events.

        `lines` carries a log page (its id is the cursor), `phase` is sent at the beginning and whenever the job's phase
        or message changed, then `end`.
        """
        job = self.get_object()
        return following(
            job,
            access=access_of(request, job),
            cursor=request.query_params.get("cursor", "") or request.headers.get("Last-Event-ID", ""),
            **_lines_asked(request, job),
        )

    @extend_schema(
        responses=FoundSerializer,
        parameters=[
            query("text", str, "the text to find, ignoring case"),
            RANK,
            REPLICA,
            OF_ATTEMPT,
            query("limit", int, "at most this many lines, up to 1000"),
            query("start", str, "`next` of an earlier response"),
            query("regex", bool, "`text` is a regular expression in RE2's syntax"),
        ],
    )
    @action(detail=True, pagination_class=None, url_path="logs/search")
    def logs_search(self, request: Request, pk: str) -> Response:
        """Lines of one attempt that contain the given text. A long log is searched in parts."""
        job = self.get_object()
        found = search.search(
            job=job,
            text=request.query_params.get("text", ""),
            by=request.user.pk,
            source=source_of(request, job),
            attempt=attempt_of(request, job),
            limit=number(request, "limit", least=1) or search.SEARCH_LINES,
            start=request.query_params.get("start", ""),
            is_regex=(is_regex := flag(request, "regex")),
        )
        return Response({**found_lines(found), "regex": is_regex})

    @extend_schema(
        responses={(200, "text/plain"): OpenApiTypes.STR},
        parameters=[RANK, REPLICA, OF_ATTEMPT],
    )
    @action(detail=True, pagination_class=None, url_path="logs/text", renderer_classes=[TextRenderer, JSONRenderer])
    def logs_text(self, request: Request, pk: str) -> StreamingHttpResponse:
        """The whole log of one attempt as text: time, rank or replica, line."""
        job = self.get_object()
        source, attempt = source_of(request, job), attempt_of(request, job)
        return text_response(request._request, search.stream_text(job=job, source=source, attempt=attempt))

    @extend_schema(
        responses=MetricsSerializer,
        parameters=[query("name", str, "only this series; may be repeated"), OF_ATTEMPT],
    )
    @action(detail=True, pagination_class=None)
    def metrics(self, request: Request, pk: str) -> Response:
        """What ranks reported: at most 500 points per series, fewer the more series there are (100,000 in all)."""
        job = self.get_object()
        names = request.query_params.getlist("name") or None
        points = [
            {
                "name": one.name,
                "rank": one.rank,
                "points": [[int(at.timestamp() * 1000), step, value] for at, step, value in one.points],
            }
            for one in metrics.series(job=job, names=names, attempt=attempt_of(request, job))
        ]
        return Response({"series": points})

    def _job(self, job: Job, status: int = 200) -> Response:
        return Response(JobSerializer(job, context=self.get_serializer_context()).data, status=status)

    def _list(self, serializer: type[BaseSerializer[Any]], rows: QuerySet[Any]) -> Response:
        return Response({"results": serializer(rows, many=True).data, "next": None})


def _lines_asked(request: Request, job: Job) -> dict[str, Any]:
    """Return which lines of a job's log are requested by RANK, REPLICA, TAIL and ONLY_ATTEMPT."""
    return {
        "source": source_of(request, job),
        "tail": number(request, "tail"),
        "attempt": number(request, "attempt", least=1),
    }
