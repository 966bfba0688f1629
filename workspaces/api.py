"""/api/v1/workspaces: send a packed folder, get its number."""

import io
from typing import IO, Any, cast

from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Team, User
from accounts.permissions import Act, may
from controlplane.errors import InvalidInput, NotAllowed, Problem

from .models import Workspace
from .services import store


class GzipParser(BaseParser):
    """The body as it comes; `store` bounds what is read of it."""

    media_type = "application/gzip"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        most = settings.MUSTER_MAX_WORKSPACE_BYTES
        return io.BytesIO(stream.read(most + 1))


class WorkspaceSerializer(serializers.ModelSerializer[Workspace]):
    team = serializers.CharField(source="team.name")

    class Meta:
        model = Workspace
        fields = ("id", "digest", "size_bytes", "team", "created_at")
        read_only_fields = fields


class WorkspaceView(APIView):
    parser_classes = [GzipParser]

    @extend_schema(
        operation_id="workspaces_create",
        request={"application/gzip": OpenApiTypes.BINARY},
        responses={201: WorkspaceSerializer, 200: WorkspaceSerializer},
        parameters=[
            OpenApiParameter("X-Muster-Digest", str, OpenApiParameter.HEADER, description="sha256 of the body, hex"),
            OpenApiParameter("team", str, OpenApiParameter.QUERY, description="needed by members of several teams"),
            OpenApiParameter("queue", str, OpenApiParameter.QUERY, description="or the queue the job will go to"),
        ],
    )
    def post(self, request: Request) -> Response:
        assert isinstance(request.user, User)
        team = _team(request.user, request.query_params.get("team", ""), request.query_params.get("queue", ""))
        digest = request.headers.get("X-Muster-Digest", "")
        workspace, is_new = store(team=team, by=request.user, stream=cast(IO[bytes], request.data), digest=digest)
        return Response(WorkspaceSerializer(workspace).data, status=201 if is_new else 200)


def _team(user: User, name: str, queue: str) -> Team:
    """The team that shall own the code: as named, or the only one in which the user may submit."""
    teams = [team for team in Team.objects.order_by("name") if may(user, Act.SUBMIT, team)]
    if queue:
        teams = [team for team in teams if team.queues.filter(name=queue).exists()]
    elif name:
        teams = [team for team in teams if team.name == name]
    if len(teams) == 1:
        return teams[0]
    if not teams and (queue or name):
        field, value = ("queue", queue) if queue else ("team", name)
        raise InvalidInput(Problem(field, value, f"{value!r} is not one that you may submit to"))
    if not teams:
        raise NotAllowed(f"{user.get_username()} may not submit in any team; ask an administrator to be made a member")
    raise InvalidInput(Problem("team", name, f"name one with ?team=: {', '.join(team.name for team in teams)}"))
