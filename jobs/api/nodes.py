"""/api/v1/excluded-nodes and /suspected-nodes: nodes that platform administrators keep new pods away from, or might."""

from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.permissions import require_platform_admin
from accounts.serializers import Sent
from common.http.rest import listed
from jobs.analysis import suspects
from jobs.models import AttemptFailure
from jobs.submission import nodes
from queues import excluded
from queues.models import ExcludedNode

from .params import user_of


class ExcludedNodeSerializer(serializers.ModelSerializer[ExcludedNode]):
    """A node that new pods stay away from; those on it go on."""

    excluded_by = serializers.CharField(source="excluded_by.username", allow_null=True, default=None)

    class Meta:
        model = ExcludedNode
        fields = ("id", "cluster", "name", "reason", "excluded_at", "excluded_by")
        read_only_fields = fields


class NewExcluded(Sent):
    cluster = serializers.CharField(max_length=40)
    name = serializers.CharField(max_length=253)
    reason = serializers.CharField(max_length=excluded.MOST_REASON, help_text="what is wrong with the node")


class NodeFailureSerializer(serializers.ModelSerializer[AttemptFailure]):
    """The newest verdict on a job that blames the node."""

    job = serializers.IntegerField(source="job_id")
    job_name = serializers.CharField(source="job.name")
    team = serializers.CharField(source="job.team.name")

    class Meta:
        model = AttemptFailure
        fields = ("job", "job_name", "team", "attempt", "kind", "headline", "judged_at")
        read_only_fields = fields


class SuspectSerializer(serializers.Serializer[Any]):
    """A node that verdicts blame for the failures of several jobs within a day."""

    cluster = serializers.CharField()
    name = serializers.CharField()
    reason = serializers.CharField(help_text="what would be written down where it is excluded")
    failures = NodeFailureSerializer(many=True)


class ExcludedNodesView(APIView):
    """Nodes that new pods stay away from; for platform administrators."""

    @extend_schema(operation_id="excluded_nodes_list", responses=listed(ExcludedNodeSerializer))
    def get(self, request: Request) -> Response:
        require_platform_admin(user_of(request), "see which nodes are excluded")
        rows = ExcludedNode.objects.filter(readmitted_at=None).select_related("excluded_by")
        return Response({"results": ExcludedNodeSerializer(rows, many=True).data, "next": None})

    @extend_schema(operation_id="excluded_nodes_create", request=NewExcluded, responses={201: ExcludedNodeSerializer})
    def post(self, request: Request) -> Response:
        row = nodes.exclude(by=user_of(request), **NewExcluded.of(request))
        return Response(ExcludedNodeSerializer(row).data, status=201)


class ExcludedNodeView(APIView):
    @extend_schema(operation_id="excluded_nodes_destroy", request=None, responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Let new pods on the node again."""
        require_platform_admin(user_of(request), "readmit nodes")
        excluded.readmit(row=get_object_or_404(ExcludedNode, pk=pk, readmitted_at=None), by=user_of(request))
        return Response(status=204)


class SuspectedNodesView(APIView):
    """Nodes that verdicts blame for the failures of several jobs within a day; for platform administrators."""

    @extend_schema(operation_id="suspected_nodes_list", responses=listed(SuspectSerializer))
    def get(self, request: Request) -> Response:
        require_platform_admin(user_of(request), "see which nodes are suspected")
        found = suspects.suspects(timezone.now(), clusters=nodes.with_nodes())
        return Response({"results": SuspectSerializer(found, many=True).data, "next": None})
