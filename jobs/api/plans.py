"""/api/v1/plans: what a submission would do, without doing it; /api/v1/job-fields: what it may say."""

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from common.http.rest import listed
from jobs import frameworks, services
from jobs.core.fields import FIELDS
from jobs.core.plan import world_size

from .params import description, user_of
from .serializers import JobFieldSerializer, SubmitSerializer
from .waiting import WaitingSerializer


class PodSerializer(serializers.Serializer[Any]):
    """What the pods of a role are, with the cluster's own settings; all of it empty where replicas are processes."""

    image = serializers.CharField()
    requests = serializers.DictField(child=serializers.CharField(), help_text="resources of Kubernetes, devices aside")
    limits = serializers.DictField(child=serializers.CharField())
    shm = serializers.CharField(help_text="the most that /dev/shm holds")
    node_selector = serializers.DictField(child=serializers.CharField())
    tolerations = serializers.ListField(child=serializers.DictField(child=serializers.JSONField()))
    priority_class = serializers.CharField()
    scheduler = serializers.CharField()
    service_account = serializers.CharField()
    sidecars = serializers.ListField(child=serializers.DictField(child=serializers.JSONField()))
    init_containers = serializers.ListField(child=serializers.DictField(child=serializers.JSONField()))
    mounts = serializers.ListField(child=serializers.DictField(child=serializers.JSONField()))
    host_network = serializers.BooleanField()
    labels = serializers.DictField(child=serializers.CharField())
    annotations = serializers.DictField(child=serializers.CharField())
    working_dir = serializers.CharField()


class RoleSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    replicas = serializers.IntegerField()
    processes = serializers.IntegerField(help_text="in each replica")
    command = serializers.ListField(child=serializers.CharField())
    pod = PodSerializer(source="shape")


class DistributionSerializer(serializers.Serializer[Any]):
    nodes = serializers.IntegerField()
    min_nodes = serializers.IntegerField(allow_null=True, help_text="minimum of an elastic job; `nodes` is the maximum")
    nproc_per_node = serializers.IntegerField()
    world_size = serializers.IntegerField()


class PlanSerializer(serializers.Serializer[Any]):
    """What a submission would do; nothing is created."""

    queue = serializers.CharField()
    framework = serializers.CharField()
    roles = RoleSerializer(many=True)
    distribution = DistributionSerializer()
    asked = serializers.DictField(child=serializers.IntegerField(), help_text="resource to count")
    spec = serializers.DictField(child=serializers.JSONField(), help_text="the description with everything filled in")
    fits_now = serializers.BooleanField()
    wait_reason = serializers.CharField(help_text="why it would wait; empty if it would start at once")
    waiting = WaitingSerializer(allow_null=True, help_text="the same as data; null if it would start at once")
    notes = serializers.ListField(child=serializers.CharField(), help_text="warnings to read before it starts")


class PlanView(APIView):
    @extend_schema(operation_id="plans_create", request=SubmitSerializer, responses=PlanSerializer)
    def post(self, request: Request) -> Response:
        """Roles, distribution and quota as `POST /jobs` would choose them; all problems are reported at once."""
        queue, workspace, sent = description(request)
        found = services.preview(user=user_of(request), queue=queue, sent=sent, workspace=workspace)
        return Response(PlanSerializer(_shown(found)).data)


class JobFieldsView(APIView):
    @extend_schema(operation_id="job_fields_list", responses=listed(JobFieldSerializer))
    def get(self, request: Request) -> Response:
        """The fields of a job that this server knows, with type, bounds, default and help."""
        every = [(None, FIELDS), *frameworks.OPTIONS.items()]
        rows = [{**asdict(field), "framework": name} for name, fields in every for field in fields.values()]
        return Response({"results": JobFieldSerializer(rows, many=True).data, "next": None})


def _shown(found: services.Preview) -> dict[str, object]:
    spec = found.spec
    return {
        "queue": found.queue.name,
        "framework": spec.framework,
        "roles": found.roles,
        "distribution": {
            "nodes": spec.nodes,
            "min_nodes": spec.min_nodes,
            "nproc_per_node": spec.nproc_per_node,
            "world_size": world_size(found.roles),
        },
        "asked": found.asked,
        "spec": spec.to_json(),
        "fits_now": not found.wait_reason,
        "wait_reason": found.wait_reason,
        "waiting": found.waiting if found.wait_reason else None,
        "notes": found.notes,
    }
