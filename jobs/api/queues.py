"""/api/v1/queues: quota and its use. Here and not in `queues`, which is independent of jobs."""

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import members
from accounts.models import Team
from accounts.permissions import Act, require
from common.http.rest import Paging, listed
from jobs.scheduling.quota_use import free_of
from jobs.scheduling.usage import over_quota_warning, with_use
from jobs.submission import pods
from jobs.submission.resolving import queue_defaults
from queues import allowed, rules, services, templates
from queues.models import POLICIES, AllowedObject, Queue, QueueVersion, Resource
from queues.readable import readable_queues

from .params import sent, user_of

MOST = 100  # versions that are listed


class QueueSerializer(serializers.ModelSerializer[Queue]):
    team = serializers.CharField(source="team.name")
    slots = serializers.IntegerField(source="nominal", help_text="how many processes may hold a slot at once")
    used = serializers.IntegerField(help_text="slots held by jobs now")
    free = serializers.SerializerMethodField(help_text="how many more jobs may hold now, with what it may borrow")
    flavor = serializers.CharField(
        source="flavor.name", allow_null=True, default=None, help_text="that it takes from its team's quota, or null"
    )
    defaults = serializers.DictField(
        child=serializers.JSONField(), help_text="fields that its jobs have unless they say otherwise"
    )
    template = serializers.DictField(
        child=serializers.JSONField(), help_text="what its jobs' pods are besides: node, shm_per_gpu, locked, pods"
    )
    version = serializers.IntegerField(help_text="of defaults and template, counted from 1")
    check_state = serializers.CharField(
        help_text="whether its cluster would take such a pod: valid, invalid, not_checked, or empty"
    )
    check_words = serializers.CharField(help_text="the cluster's own words")
    notice = serializers.SerializerMethodField(help_text="a warning about the queue's current state, or empty")

    class Meta:
        model = Queue
        fields = (
            "id", "name", "team", "cluster", "resource", "nominal", "slots", "used", "free", "gpus_per_node", "description",
            "is_open", "drains", "policy", "flavor", "borrowing_limit", "preempts", *rules.NAMES, "notice", "defaults", "template", "version", "check_state", "check_words",
        )  # fmt: skip
        read_only_fields = fields

    def get_free(self, queue: Queue) -> int:
        found: dict[str, Any] = self.context  # type: ignore[assignment]  # that of the whole answer, for all its queues
        if (shared := found.get("free")) is None:
            rows = [queue] if self.parent is None else self.parent.instance or []
            shared = found["free"] = free_of(rows)
        alone = max(0, queue.nominal - queue.used)  # type: ignore[attr-defined]  # annotated by with_use
        return int(shared.get(queue.pk, alone))

    @extend_schema_field(serializers.CharField())
    def get_notice(self, queue: Queue) -> str:
        return over_quota_warning(queue, used=queue.used)  # type: ignore[attr-defined]  # annotated by with_use


class QueueVersionSerializer(serializers.ModelSerializer[QueueVersion]):
    created_by = serializers.CharField(source="created_by.username", allow_null=True, default=None)
    changed = serializers.ListField(
        child=serializers.CharField(), default=[], help_text="paths that differ from the version before"
    )
    content = serializers.DictField(child=serializers.JSONField())

    class Meta:
        model = QueueVersion
        fields = ("number", "created_at", "created_by", "changed", "content", "check_state", "check_words")
        read_only_fields = fields


class QueueFields(serializers.Serializer[Any]):
    slots = serializers.IntegerField(required=False, min_value=1, max_value=services.MOST_SLOTS)
    is_open = serializers.BooleanField(required=False, help_text="whether its jobs may start")
    drains = serializers.BooleanField(
        required=False,
        help_text="whether running jobs give their quota back while it is closed; false when it is opened",
    )
    policy = serializers.ChoiceField(
        choices=POLICIES, required=False,
        help_text="whether a job may start before one that came earlier and does not fit yet; new queues: backfill",
    )  # fmt: skip
    description = serializers.CharField(required=False, allow_blank=True, max_length=200)
    gpus_per_node = serializers.IntegerField(required=False, min_value=0, max_value=services.MOST_GPUS_PER_NODE)
    flavor = serializers.CharField(
        required=False, allow_null=True, max_length=40,
        help_text="that it takes from its team's quota; null: it shares quota with nobody",
    )  # fmt: skip
    borrowing_limit = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=services.MOST_SLOTS,
        help_text="how much beyond its slots it may take of what its team has or borrows; null: no limit",
    )  # fmt: skip
    preempts = serializers.BooleanField(
        required=False, help_text="whether its jobs take the place of those of a lower priority in it"
    )

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        limits = {
            rule.name: serializers.IntegerField(
                required=False, allow_null=True, min_value=rule.least, max_value=rule.most,
                help_text=f"{rule.words}; null: no limit",
            )
            for rule in rules.RULES
        }  # fmt: skip
        return {**super().get_fields(), **limits}


class QueueChange(QueueFields):
    """What administrators of the team may change; fields left out stay as they are."""

    reason = serializers.CharField(
        required=False, allow_blank=True, max_length=200, help_text="recorded in the audit log"
    )
    defaults = serializers.DictField(
        child=serializers.JSONField(allow_null=True), required=False,
        help_text="fields that its jobs have unless they say otherwise (GET /job-fields), in place of those of today",
    )  # fmt: skip
    template = serializers.DictField(
        child=serializers.JSONField(allow_null=True), required=False,
        help_text="node, shm_per_gpu, locked and pods, in place of those of today (docs/pods.md)",
    )  # fmt: skip
    version = serializers.IntegerField(
        required=False, min_value=0, max_value=10**6, help_text="that was seen; 409 if it is no longer the newest"
    )


class NewQueue(QueueFields):
    name = serializers.RegexField(r"^[-a-zA-Z0-9_]+\Z", max_length=40, trim_whitespace=False)
    team = serializers.CharField(max_length=40)
    cluster = serializers.CharField(max_length=40)
    resource = serializers.ChoiceField(choices=Resource.choices, default=Resource.CPU)
    slots = serializers.IntegerField(min_value=1, max_value=services.MOST_SLOTS)


class QueueViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Queue]):
    queryset = Queue.objects.none()
    serializer_class = QueueSerializer
    pagination_class = Paging
    lookup_field = "name"
    lookup_value_regex = "[-a-zA-Z0-9_]{1,40}"

    def get_queryset(self) -> QuerySet[Queue]:
        return with_use(readable_queues(user_of(self.request)))

    @extend_schema(request=NewQueue, responses={201: QueueSerializer})
    def create(self, request: Request) -> Response:
        queue = services.make(by=user_of(request), **sent(NewQueue, request))
        return self._queue(queue, 201)

    @extend_schema(request=QueueChange, responses=QueueSerializer)
    def partial_update(self, request: Request, name: str) -> Response:
        queue, user, values = self.get_object(), user_of(request), sent(QueueChange, request)
        require(user, Act.MANAGE, queue.team)
        if "defaults" in values:
            values["defaults"] = queue_defaults(queue, values["defaults"])
        if "template" in values:
            values["template"] = pods.checked(queue, values["template"], by=user)
        return self._queue(services.change(queue=queue, by=user, **values))

    @extend_schema(operation_id="queues_versions", responses=listed(QueueVersionSerializer))
    @action(detail=True)
    def versions(self, request: Request, name: str) -> Response:
        """Return the versions of its defaults and template, newest first, each with what it changed."""
        found = templates.history(self.get_object(), most=MOST)
        results = [{**QueueVersionSerializer(row).data, "changed": changed} for row, changed in found]
        return Response({"results": results, "next": None})

    def _queue(self, queue: Queue, status: int = 200) -> Response:
        row = with_use(Queue.objects.filter(pk=queue.pk).select_related("team", "flavor")).get()
        return Response(QueueSerializer(row).data, status=status)


class CeilingSerializer(serializers.Serializer[Any]):
    """How much all queues of a team together may hold of a resource."""

    resource = serializers.ChoiceField(choices=Resource.choices)
    slots = serializers.IntegerField(allow_null=True, help_text="null: no ceiling")
    quota = serializers.IntegerField(help_text="the sum over the quotas of its queues")


class CeilingChange(serializers.Serializer[Any]):
    slots = serializers.IntegerField(
        allow_null=True, min_value=0, max_value=services.MOST_SLOTS, help_text="null: no ceiling"
    )
    reason = serializers.CharField(
        required=False, allow_blank=True, max_length=200, help_text="recorded in the audit log"
    )


class CeilingsView(APIView):
    @extend_schema(operation_id="ceilings_list", responses=listed(CeilingSerializer))
    def get(self, request: Request, team: str) -> Response:
        found = members.readable_team(user_of(request), team)
        results = [_ceiling(found, *pair) for pair in services.ceilings_of(found).items()]
        return Response({"results": results, "next": None})


class CeilingView(APIView):
    """For platform administrators: teams set the quotas of their queues up to it."""

    @extend_schema(operation_id="ceilings_update", request=CeilingChange, responses=CeilingSerializer)
    def put(self, request: Request, team: str, resource: str) -> Response:
        found = members.readable_team(user_of(request), team)
        row = services.set_ceiling(team=found, resource=resource, by=user_of(request), **sent(CeilingChange, request))
        return Response(_ceiling(found, resource, row.slots))


class AllowedSerializer(serializers.ModelSerializer[AllowedObject]):
    """An object of a cluster that the team's pods may name."""

    kind = serializers.ChoiceField(choices=AllowedObject.Kind.choices)
    created_by = serializers.CharField(source="created_by.username", allow_null=True, default=None)

    class Meta:
        model = AllowedObject
        fields = ("id", "cluster", "kind", "name", "created_at", "created_by")
        read_only_fields = fields


class NewAllowed(serializers.Serializer[Any]):
    cluster = serializers.CharField(max_length=40)
    kind = serializers.CharField(max_length=16, help_text=", ".join(AllowedObject.Kind.values))
    name = serializers.CharField(max_length=253, trim_whitespace=False)


class AllowedView(APIView):
    """What pods of the team's jobs may name in each cluster; platform administrators keep the list."""

    @extend_schema(operation_id="allowed_list", responses=listed(AllowedSerializer))
    def get(self, request: Request, team: str) -> Response:
        found = members.readable_team(user_of(request), team)
        rows = AllowedObject.objects.filter(team=found).select_related("created_by")
        return Response({"results": AllowedSerializer(rows, many=True).data, "next": None})

    @extend_schema(operation_id="allowed_create", request=NewAllowed, responses={201: AllowedSerializer})
    def post(self, request: Request, team: str) -> Response:
        found = members.readable_team(user_of(request), team)
        row = allowed.allow(team=found, by=user_of(request), **sent(NewAllowed, request))
        return Response(AllowedSerializer(row).data, status=201)


class AllowedOneView(APIView):
    @extend_schema(operation_id="allowed_destroy", request=None, responses={204: None})
    def delete(self, request: Request, team: str, pk: int) -> Response:
        found = members.readable_team(user_of(request), team)
        row = get_object_or_404(AllowedObject.objects.select_related("team"), team=found, pk=pk)
        allowed.forbid(row=row, by=user_of(request))
        return Response(status=204)


def _ceiling(team: Team, resource: str, slots: int | None) -> dict[str, Any]:
    return {"resource": resource, "slots": slots, "quota": services.quota_of(team, resource)}
