"""/api/v1/clusters/NAME/namespaces: namespaces of a cluster that belong to one team each. For platform administrators."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Team
from accounts.serializers import Sent
from common.errors import InvalidInput, Problem
from common.http.rest import listed
from jobs.submission import team_namespaces
from queues import namespaces
from queues.models import TeamNamespace

from .clusters import need_cluster
from .params import user_of


class TeamNamespaceSerializer(serializers.ModelSerializer[TeamNamespace]):
    """The namespace in which a team's jobs are made, from the one that is submitted next."""

    team = serializers.CharField(source="team.name")
    bound_by = serializers.CharField(source="bound_by.username", allow_null=True, default=None)

    class Meta:
        model = TeamNamespace
        fields = ("team", "cluster", "namespace", "bound_at", "bound_by")
        read_only_fields = fields


class NewTeamNamespace(Sent):
    team = serializers.CharField(max_length=40)
    namespace = serializers.CharField(max_length=63)
    make = serializers.BooleanField(default=False)


class TeamNamespacesView(APIView):
    @extend_schema(operation_id="team_namespaces_list", responses=listed(TeamNamespaceSerializer))
    def get(self, request: Request, name: str) -> Response:
        need_cluster(request, name, "see the namespaces of teams")
        return Response({"results": TeamNamespaceSerializer(namespaces.bound(name), many=True).data, "next": None})

    @extend_schema(
        operation_id="team_namespaces_create", request=NewTeamNamespace, responses={201: TeamNamespaceSerializer}
    )
    def post(self, request: Request, name: str) -> Response:
        """Have a team's jobs made in a namespace of its own, after asking the cluster what the namespace lacks.

        With `make` Muster makes the namespace first, where its account may (deploy/team-namespaces.yaml).
        """
        need_cluster(request, name, "give namespaces to teams")
        given = NewTeamNamespace.of(request)
        row = team_namespaces.bind(
            team=_team(given["team"]),
            cluster=name,
            namespace=given["namespace"],
            by=user_of(request),
            make=given["make"],
        )
        return Response(TeamNamespaceSerializer(row).data, status=201)


class TeamNamespaceView(APIView):
    @extend_schema(operation_id="team_namespaces_destroy", request=None, responses={204: None})
    def delete(self, request: Request, name: str, team: str) -> Response:
        """Have the team's jobs made in the cluster's own namespace again."""
        need_cluster(request, name, "take namespaces from teams")
        found = Team.objects.filter(name=team).first()
        if found is None:
            raise Http404
        team_namespaces.release(team=found, cluster=name, by=user_of(request))
        return Response(status=204)


def _team(name: str) -> Any:
    if found := Team.objects.filter(name=name).first():
        return found
    raise InvalidInput(Problem("team", name, "is no team; `muster teams` lists them"))
