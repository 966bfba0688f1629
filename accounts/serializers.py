"""Serializers of /api/v1 for users, teams, tokens and the audit."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request

from common.errors import InvalidInput, Problem

from .models import AuditEntry, Membership, Role, Scope, Team, Token, User
from .tokens import MOST_DAYS


class Sent(serializers.Serializer[Any]):
    """A request body. An unknown field is refused: misspelt, it would silently be left at its default."""

    @classmethod
    def of(cls, request: Request) -> dict[str, Any]:
        body = cls(data=request.data)
        body.is_valid(raise_exception=True)
        known = sorted(cls().fields)
        if unknown := sorted(str(name) for name in set(request.data) - set(known)):
            words = f"is not a known field; known are {', '.join(known)}"
            raise InvalidInput(*(Problem(one, None, words) for one in unknown))
        return dict(body.validated_data)


class LoginSerializer(Sent):
    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=512, trim_whitespace=False, write_only=True)
    code = serializers.CharField(
        max_length=40, required=False, default="", allow_blank=True, write_only=True, help_text="of the second factor"
    )
    name = serializers.CharField(
        max_length=80, required=False, default="command line", help_text="what the token is for"
    )
    scope = serializers.ChoiceField(choices=Scope.choices, default=Scope.SUBMIT)
    expires_in_days = serializers.IntegerField(min_value=1, max_value=MOST_DAYS, default=90)


class LoginAnswer(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="shown this once")
    user = serializers.CharField()
    scope = serializers.CharField()
    expires_at = serializers.DateTimeField()


class NewToken(Sent):
    name = serializers.CharField(max_length=80, help_text="what it is for")
    scope = serializers.ChoiceField(choices=Scope.choices, default=Scope.SUBMIT)
    team = serializers.CharField(
        max_length=40, allow_null=True, default=None, help_text="limits the token to this team; null: every team"
    )
    expires_in_days = serializers.IntegerField(
        min_value=1, max_value=MOST_DAYS, allow_null=True, default=None, help_text="default: 90"
    )
    service_account = serializers.CharField(
        max_length=150, allow_null=True, default=None, help_text="for this account of a team you administer"
    )


class TokenSerializer(serializers.ModelSerializer[Token]):
    team = serializers.CharField(source="team.name", allow_null=True, default=None)
    user = serializers.CharField(source="user.username")

    class Meta:
        model = Token
        fields: tuple[str, ...] = (
            "id", "name", "prefix", "scope", "team", "user", "expires_at", "created_at", "last_used_at", "revoked_at",
        )  # fmt: skip
        read_only_fields = fields


class MadeToken(TokenSerializer):
    text = serializers.CharField(help_text="the token itself; shown only once")

    class Meta(TokenSerializer.Meta):
        fields = (*TokenSerializer.Meta.fields, "text")
        read_only_fields = fields


class TeamRole(serializers.Serializer[Any]):
    name = serializers.CharField()
    role = serializers.CharField()


class TokenInUse(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    name = serializers.CharField()
    prefix = serializers.CharField()
    scope = serializers.CharField()
    team = serializers.CharField(allow_null=True)
    expires_at = serializers.DateTimeField()


class MeAnswer(serializers.Serializer[Any]):
    user = serializers.CharField()
    is_admin = serializers.BooleanField(help_text="platform administrator")
    is_service_account = serializers.BooleanField()
    teams = TeamRole(many=True)
    token = TokenInUse(allow_null=True)
    version = serializers.CharField()


class NewTeam(Sent):
    name = serializers.RegexField(
        r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?\Z",
        trim_whitespace=False,
        help_text="1 to 40 of a-z, 0-9 and -, not beginning or ending with -",
    )


class TeamSerializer(serializers.ModelSerializer[Team]):
    role = serializers.SerializerMethodField(help_text="your own role; null if you are not a member")
    members = serializers.SerializerMethodField(help_text="how many")

    class Meta:
        model = Team
        fields = ("id", "name", "role", "members", "created_at")
        read_only_fields = fields

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_role(self, team: Team) -> str | None:
        return next((one.role for one in team.memberships.all() if one.user_id == self.context["user"].pk), None)

    @extend_schema_field(serializers.IntegerField())
    def get_members(self, team: Team) -> int:
        return len(team.memberships.all())


class NewRole(Sent):
    role = serializers.ChoiceField(choices=Role.choices)


class NewServiceAccount(NewTeam):
    role = serializers.ChoiceField(choices=Role.choices, default=Role.MEMBER)


class MemberSerializer(serializers.ModelSerializer[Membership]):
    username = serializers.CharField(source="user.username")
    is_active = serializers.BooleanField(source="user.is_active")
    is_service_account = serializers.BooleanField(source="user.is_service_account")

    class Meta:
        model = Membership
        fields = ("username", "role", "is_active", "is_service_account")
        read_only_fields = fields


class AuditSerializer(serializers.ModelSerializer[AuditEntry]):
    actor = serializers.CharField(source="actor_name")
    team = serializers.CharField(source="team_name")
    before = serializers.DictField()
    after = serializers.DictField()
    ip = serializers.CharField(allow_null=True)

    class Meta:
        model = AuditEntry
        fields = (
            "id", "at", "actor", "token_prefix", "act", "target_kind", "target_id", "target_name", "team", "before",
            "after", "ip", "user_agent",
        )  # fmt: skip
        read_only_fields = fields


def user_of(request: Request) -> User:
    assert isinstance(request.user, User)
    return request.user
