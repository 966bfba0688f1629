"""/api/v1/teams/TEAM/secrets: secrets of a team. Values are written, never returned."""

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.serializers import Sent, user_of
from common.http.rest import Paging

from . import services
from .models import Kind, SecretVersion, TeamSecret


class SecretVersionSerializer(serializers.ModelSerializer[SecretVersion]):
    created_by = serializers.CharField(source="created_by.username", allow_null=True, default=None)

    class Meta:
        model = SecretVersion
        fields = ("number", "keys", "created_at", "created_by")
        read_only_fields = fields


class TeamSecretSerializer(serializers.ModelSerializer[TeamSecret]):
    kind = serializers.ChoiceField(choices=Kind.choices, help_text="how replicas get it")
    keys = serializers.ListField(
        child=serializers.CharField(), help_text="names of variables or files; values are never returned"
    )
    versions = SecretVersionSerializer(many=True, help_text="newest first")
    used_by = serializers.SerializerMethodField(help_text="open jobs and queues that name it")

    class Meta:
        model = TeamSecret
        fields = ("name", "kind", "keys", "version", "versions", "used_by", "created_at")
        read_only_fields = fields

    def get_used_by(self, row: TeamSecret) -> list[str]:
        return services.used_by(row)


class NewTeamSecret(Sent):
    name = serializers.CharField(
        max_length=200,
        trim_whitespace=False,
        help_text="1 to 40 of a-z, 0-9 and -; jobs name it, so it cannot be changed",
    )
    kind = serializers.CharField(max_length=20, default=Kind.ENV.value, help_text=", ".join(Kind.values))
    values = serializers.DictField(
        child=serializers.CharField(allow_blank=True, trim_whitespace=False), write_only=True,
        help_text="by name of a variable or file; of a registry login: server, username, password",
    )  # fmt: skip


class TeamSecretChange(Sent):
    values = serializers.DictField(
        child=serializers.CharField(allow_blank=True, allow_null=True, trim_whitespace=False), write_only=True,
        help_text="over the values before; null removes a key",
    )  # fmt: skip


class TeamSecretsView(generics.ListAPIView[TeamSecret]):
    serializer_class = TeamSecretSerializer
    pagination_class = Paging
    queryset = TeamSecret.objects.none()

    def get_queryset(self) -> QuerySet[TeamSecret]:
        return services.of_team(user_of(self.request), self.kwargs["team"])[1]

    @extend_schema(operation_id="team_secrets_create", request=NewTeamSecret, responses={201: TeamSecretSerializer})
    def post(self, request: Request, team: str) -> Response:
        found, _ = services.of_team(user_of(request), team)
        secret = services.create(team=found, by=user_of(request), **NewTeamSecret.of(request))
        return Response(TeamSecretSerializer(secret).data, status=201)


class TeamSecretView(APIView):
    @extend_schema(operation_id="team_secrets_retrieve", responses=TeamSecretSerializer)
    def get(self, request: Request, team: str, name: str) -> Response:
        return Response(TeamSecretSerializer(services.one_of(user_of(request), team, name)).data)

    @extend_schema(operation_id="team_secrets_update", request=TeamSecretChange, responses=TeamSecretSerializer)
    def patch(self, request: Request, team: str, name: str) -> Response:
        secret = services.one_of(user_of(request), team, name)
        services.change(secret=secret, by=user_of(request), **TeamSecretChange.of(request))
        return Response(TeamSecretSerializer(services.one_of(user_of(request), team, name)).data)

    @extend_schema(operation_id="team_secrets_destroy", request=None, responses={204: None})
    def delete(self, request: Request, team: str, name: str) -> Response:
        services.remove(secret=services.one_of(user_of(request), team, name), by=user_of(request))
        return Response(status=204)
