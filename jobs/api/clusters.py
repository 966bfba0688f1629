"""/api/v1/clusters: the clusters that are configured, and whether they have what Muster needs. For platform administrators."""

from typing import Any

from django.conf import settings
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.permissions import require_platform_admin
from common.http.rest import listed
from jobs.submission import inspecting

from .params import user_of


class ClusterSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    makes_pods = serializers.BooleanField(help_text="whether replicas are pods; if not, processes of one machine")
    namespace = serializers.CharField(help_text="of the pods of new attempts; empty without pods")
    queues = serializers.ListField(child=serializers.CharField())


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
        rows = [inspecting.described(alias) for alias in sorted(settings.CLUSTERS)]
        return Response({"results": ClusterSerializer(rows, many=True).data, "next": None})


class ClusterCheckView(APIView):
    """Looks at the cluster now, and changes nothing."""

    @extend_schema(operation_id="clusters_check", responses=listed(InspectedSerializer))
    def get(self, request: Request, name: str) -> Response:
        require_platform_admin(user_of(request), "check clusters")
        if name not in settings.CLUSTERS:
            raise Http404
        return Response({"results": InspectedSerializer(inspecting.inspect(name), many=True).data, "next": None})
