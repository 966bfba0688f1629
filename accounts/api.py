"""/api/v1/login and /api/v1/me."""

from typing import Any

from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.signals import user_logged_in
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from .models import Token, User


class LoginSerializer(serializers.Serializer[Any]):
    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=512, trim_whitespace=False, write_only=True)
    name = serializers.CharField(
        max_length=80, required=False, default="command line", help_text="what the token is for"
    )


class LoginAnswer(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="shown this once")
    user = serializers.CharField()


class LoginView(APIView):
    authentication_classes: list[Any] = []
    permission_classes = [AllowAny]

    @extend_schema(operation_id="login", request=LoginSerializer, responses={201: LoginAnswer}, auth=[])
    def post(self, request: Request) -> Response:
        body = LoginSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        sent = body.validated_data
        plain = request._request  # what the counting of failures marks, and its middleware looks at
        user = authenticate(plain, username=sent["username"], password=sent["password"])
        if not isinstance(user, User):
            raise AuthenticationFailed("user name or password is wrong")
        user_logged_in.send(sender=User, request=plain, user=user)
        _, text = Token.issue(user, sent["name"])
        return Response({"token": text, "user": user.get_username()}, status=201)


class TeamAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    role = serializers.CharField()


class TokenAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    prefix = serializers.CharField()


class MeAnswer(serializers.Serializer[Any]):
    user = serializers.CharField()
    is_admin = serializers.BooleanField()
    teams = TeamAnswer(many=True)
    token = TokenAnswer(allow_null=True)
    version = serializers.CharField()


class MeView(APIView):
    @extend_schema(operation_id="me", responses=MeAnswer)
    def get(self, request: Request) -> Response:
        user, token = request.user, request.auth
        assert isinstance(user, User)
        memberships = user.memberships.select_related("team").order_by("team__name")
        return Response(
            {
                "user": user.get_username(),
                "is_admin": user.is_superuser,
                "teams": [{"name": one.team.name, "role": one.role} for one in memberships],
                "token": {"name": token.name, "prefix": token.prefix} if isinstance(token, Token) else None,
                "version": settings.VERSION,
            }
        )
