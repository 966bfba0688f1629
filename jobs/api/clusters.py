"""/api/v1/clusters: the clusters that are configured, and whether they have what Muster needs. For platform administrators."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.permissions import require_platform_admin
from common.http.rest import listed
from jobs import clusters
from jobs.submission import inspecting

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

    about = serializers.CharField(help_text="version, rights, nodes, storage, operators, machine or server")
    state = serializers.ChoiceField(choices=["ok", "note", "wrong"])
    words = serializers.CharField()
    remedy = serializers.CharField(help_text="what to type or to change; empty if all is well", allow_blank=True)
    who = serializers.CharField(help_text="who can", allow_blank=True)


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
        require_platform_admin(user_of(request), "check clusters")
        if not clusters.is_known(name):
            raise Http404
        return Response({"results": InspectedSerializer(inspecting.inspect(name), many=True).data, "next": None})
