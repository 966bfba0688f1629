"""/api/v1/clusters: the clusters that are configured, and whether they have what Muster needs. For platform administrators."""

from typing import Any

from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.permissions import require_platform_admin
from accounts.serializers import Sent
from common.errors import InvalidInput, Problem
from common.http.rest import listed
from jobs import clusters
from jobs.models import ClusterCheck
from jobs.submission import cluster_checks, inspecting
from queues.models import Queue

from .params import user_of


class ClusterSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    makes_pods = serializers.BooleanField(help_text="whether replicas are pods; if not, processes of one machine")
    namespace = serializers.CharField(help_text="of the pods of new attempts; empty without pods")
    queues = serializers.ListField(child=serializers.CharField())
    is_added = serializers.BooleanField(help_text="by an administrator; if not, it is of MUSTER_CLUSTERS")
    server = serializers.CharField(
        help_text="the API server of an added one; empty: the cluster that Muster's own pods run in", allow_blank=True
    )
    version = serializers.IntegerField(help_text="of an added one, for changes; otherwise 0")
    options = serializers.DictField(help_text="of an added one, as in MUSTER_CLUSTERS")


class InspectedSerializer(serializers.Serializer[Any]):
    """One thing that was looked at."""

    about = serializers.CharField(
        help_text="version, rights, nodes, storage, operators, machine or server; by pods: pods, names, control plane, network or image"
    )
    state = serializers.ChoiceField(choices=["ok", "note", "wrong"])
    words = serializers.CharField()
    remedy = serializers.CharField(help_text="what to type or to change; empty if all is well", allow_blank=True)
    who = serializers.CharField(help_text="who can", allow_blank=True)


class PodCheckSerializer(serializers.ModelSerializer[ClusterCheck]):
    """A look at a cluster by pods of its own, and what it found."""

    queue = serializers.CharField(source="queue.name", allow_null=True, default=None)
    asked_by = serializers.CharField(source="asked_by.username", allow_null=True, default=None)
    is_running = serializers.SerializerMethodField(help_text="whether it has no findings yet")
    findings = InspectedSerializer(many=True)

    class Meta:
        model = ClusterCheck
        fields = ("id", "cluster", "image", "queue", "asked_by", "asked_at", "ended_at", "is_running", "findings")
        read_only_fields = fields

    def get_is_running(self, row: ClusterCheck) -> bool:
        return row.ended_at is None


class NewPodCheck(Sent):
    image = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=512,
        help_text="of its pods; default: the cluster's own",
    )
    queue = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=80,
        help_text="in place of an image: what the pods of its jobs have",
    )


class ClustersView(APIView):
    @extend_schema(operation_id="clusters_list", responses=listed(ClusterSerializer))
    def get(self, request: Request) -> Response:
        require_platform_admin(user_of(request), "see the clusters")
        rows = [inspecting.described(alias) for alias in sorted(clusters.names())]
        return Response({"results": ClusterSerializer(rows, many=True).data, "next": None})


class ClusterCheckView(APIView):
    """Looks at the cluster now, and changes nothing."""

    @extend_schema(operation_id="clusters_check", responses=listed(InspectedSerializer))
    def get(self, request: Request, name: str) -> Response:
        need_cluster(request, name, "check clusters")
        return Response({"results": InspectedSerializer(inspecting.inspect(name), many=True).data, "next": None})


class PodChecksView(APIView):
    """Looks at a cluster by two small pods: whether they start, reach Muster and each other, and what their image holds."""

    @extend_schema(
        operation_id="clusters_pod_checks_create",
        request=NewPodCheck,
        responses={201: PodCheckSerializer, 200: PodCheckSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """Begin one, or return the one that is running for the same image. It takes seconds, and minutes to pull an image."""
        need_cluster(request, name, "check clusters")
        asked = NewPodCheck.of(request)
        queue = _queue(asked["queue"]) if asked["queue"] else None
        row, is_new = cluster_checks.start(cluster=name, by=user_of(request), image=asked["image"], queue=queue)
        return Response(PodCheckSerializer(row).data, status=201 if is_new else 200)


class PodCheckView(APIView):
    @extend_schema(operation_id="clusters_pod_checks_retrieve", responses=PodCheckSerializer)
    def get(self, request: Request, name: str, pk: int) -> Response:
        need_cluster(request, name, "check clusters")
        rows = ClusterCheck.objects.filter(cluster=name).select_related("queue", "asked_by")
        return Response(PodCheckSerializer(get_object_or_404(rows, pk=pk)).data)


def need_cluster(request: Request, name: str, act: str) -> None:
    """Raise NotAllowed for others than platform administrators, and 404 for a cluster that there is not."""
    require_platform_admin(user_of(request), act)
    if not clusters.is_known(name):
        raise Http404


def _queue(name: str) -> Queue:
    found = Queue.objects.filter(name=name).first()
    if found is None:
        raise InvalidInput(Problem("queue", name, "does not exist"))
    return found
