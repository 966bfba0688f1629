"""/api/v1/login and /api/v1/me."""

from copy import copy
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.signals import user_logged_in
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from common.errors import InvalidInput, NotAllowed, Problem
from common.http.error_responses import refusal

from . import audit, tokens
from .models import Token, User
from .permissions import readable_teams
from .serializers import LoginAnswer, LoginSerializer, MeAnswer, user_of
from .signin import flow, required_steps, second_factor


class LoginView(APIView):
    authentication_classes: list[Any] = []
    permission_classes = [AllowAny]

    @extend_schema(operation_id="login", request=LoginSerializer, responses={201: LoginAnswer}, auth=[])
    def post(self, request: Request) -> Response | HttpResponse:
        sent = LoginSerializer.of(request)
        plain = request._request  # the Django request, which axes marks for its failure count and its middleware reads
        user = authenticate(plain, username=sent["username"], password=sent["password"])
        if not isinstance(user, User) or not flow.may_use_password(user):
            flow.note_failure(sent["username"], way="api")
            raise AuthenticationFailed("user name or password is wrong")
        if refused := _objection(plain, user, sent["code"]):
            return refused
        until = timezone.now() + timedelta(days=sent["expires_in_days"])
        with audit.change():
            flow.note_success(user, way="api")
            user_logged_in.send(sender=User, request=_without_session(plain), user=user)
            token, text = tokens.make(user, sent["name"], by=user, scope=sent["scope"], expires_at=until)
        answer = {"token": text, "user": user.get_username(), "scope": token.scope, "expires_at": token.expires_at}
        return Response(LoginAnswer(answer).data, status=201)


def _without_session(request: HttpRequest) -> HttpRequest:
    """Return a copy without a session, for receivers of the sign-in signal.

    They note time and address in the session, and the one that came with this request belongs to another sign-in.
    """
    found = copy(request)
    del found.session
    return found


def _objection(request: HttpRequest, user: User, code: str) -> HttpResponse | None:
    """Check what else stands against a token once the password was right.

    Returns None or a response that says when to retry; raises every other objection.
    """
    thing = required_steps.first_thing(user)
    if words := flow.objection(user) or (thing.words if thing else ""):
        raise NotAllowed(words)
    if not second_factor.is_asked(user):
        return None
    if not code:
        raise InvalidInput(Problem("code", None, "is required: six digits from your authenticator, or a recovery code"))
    try:
        if second_factor.check(user, code):
            return None
    except second_factor.TooManyCodes as error:
        return refusal(request, status=429, detail=str(error), retry_after=error.seconds)
    flow.note_wrong_code(user, way="api")
    raise AuthenticationFailed("the code is wrong or already used; wait for the next one")


class MeView(APIView):
    @extend_schema(operation_id="me", responses=MeAnswer)
    def get(self, request: Request) -> Response:
        user = user_of(request)
        answer = {
            "user": user.get_username(),
            "is_admin": user.is_superuser,
            "is_service_account": user.is_service_account,
            "teams": _teams(user),
            "token": _token(request.auth),
            "version": settings.VERSION,
        }
        return Response(MeAnswer(answer).data)


def _teams(user: User) -> list[dict[str, str]]:
    """Return the user's teams, as far as the token in use reaches."""
    found = user.memberships.select_related("team").order_by("team__name")
    teams = readable_teams(user)
    return [{"name": one.team.name, "role": one.role} for one in found if teams is None or one.team_id in teams]


def _token(token: Any) -> dict[str, Any] | None:
    if not isinstance(token, Token):
        return None
    fields = {name: getattr(token, name) for name in ("id", "name", "prefix", "scope", "expires_at")}
    return {**fields, "team": token.team.name if token.team else None}
