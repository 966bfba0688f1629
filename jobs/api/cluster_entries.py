"""Adding, changing and removing clusters through /api/v1/clusters. For platform administrators, with their password."""

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.permissions import require_platform_admin
from accounts.serializers import Sent
from accounts.signin import flow
from common.errors import InvalidInput, Problem
from jobs import clusters
from jobs.submission import cluster_entries, inspecting
from queues.models import AddedCluster

from .clusters import ClusterSerializer, ClustersView, need_cluster
from .params import user_of


class Confirmed(Sent):
    password = serializers.CharField(
        max_length=512, trim_whitespace=False, write_only=True, help_text="your own, asked for again"
    )


class ChangedCluster(Confirmed):
    """What is left out stays as it is."""

    version = serializers.IntegerField(min_value=1, help_text="the one that was read")
    options = serializers.DictField(required=False, help_text="OPTIONS as in MUSTER_CLUSTERS, all of them")
    kubeconfig = serializers.CharField(
        required=False, write_only=True, help_text="YAML or JSON; replaces the one that is stored"
    )
    context = serializers.CharField(  # type: ignore[assignment]  # a serializer's own `context` is no field
        required=False, max_length=253, help_text="of several in the kubeconfig"
    )


class NewCluster(Confirmed):
    """A kubeconfig, or `in_cluster` for the account of the pods that Muster itself runs in."""

    name = serializers.CharField(max_length=40)
    options = serializers.DictField(help_text="OPTIONS as in MUSTER_CLUSTERS: NAMESPACE, IMAGE, CONTROL_URL, ...")
    kubeconfig = serializers.CharField(required=False, write_only=True, help_text="YAML or JSON; never shown again")
    context = serializers.CharField(  # type: ignore[assignment]  # a serializer's own `context` is no field
        required=False, max_length=253, help_text="of several in the kubeconfig"
    )
    in_cluster = serializers.BooleanField(required=False, default=False)


class ClustersAndNewView(ClustersView):
    @extend_schema(operation_id="clusters_create", request=NewCluster, responses={201: ClusterSerializer})
    def post(self, request: Request) -> Response:
        """Add a cluster, after asking it. It can be used at once: no process is restarted."""
        given = _confirmed(request, NewCluster, "add clusters")
        row = cluster_entries.add(by=user_of(request), **given)
        return Response(ClusterSerializer(inspecting.described(row.name)).data, status=201)


class ClusterView(APIView):
    @extend_schema(operation_id="clusters_retrieve", responses=ClusterSerializer)
    def get(self, request: Request, name: str) -> Response:
        need_cluster(request, name, "see the clusters")
        return Response(ClusterSerializer(inspecting.described(name)).data)

    @extend_schema(operation_id="clusters_update", request=ChangedCluster, responses=ClusterSerializer)
    def patch(self, request: Request, name: str) -> Response:
        """Replace the options or the credentials of an added cluster. 409 where somebody changed it meanwhile."""
        given = _confirmed(request, ChangedCluster, "change clusters")
        row = cluster_entries.change(by=user_of(request), row=_added(name), **given)
        return Response(ClusterSerializer(inspecting.described(row.name)).data)


class RemoveClusterView(APIView):
    @extend_schema(operation_id="clusters_remove", request=Confirmed, responses={204: None})
    def post(self, request: Request, name: str) -> Response:
        """Forget an added cluster that nothing uses. 409 names what does."""
        _confirmed(request, Confirmed, "remove clusters")
        cluster_entries.remove(by=user_of(request), row=_added(name))
        return Response(status=204)


def _confirmed(request: Request, body: type[Sent], act: str) -> dict[str, Any]:
    """Return the body less the password. Who may not do it at all is told so before the password counts."""
    require_platform_admin(user_of(request), act)
    given = body.of(request)
    if not flow.is_password_of(request._request, user_of(request), given.pop("password")):
        raise InvalidInput(Problem("password", None, "is not your current password"))
    return given


def _added(name: str) -> AddedCluster:
    if clusters.is_known(name) and not AddedCluster.objects.filter(name=name).exists():
        words = "is of MUSTER_CLUSTERS; whoever runs the server changes it there"
        raise InvalidInput(Problem("name", name, words))
    return get_object_or_404(AddedCluster.objects.select_related("changed_by"), name=name)
