"""/api/v1/teams: teams, members, service accounts."""

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from common.http.rest import Paging

from . import members
from .models import Membership, Team, User
from .serializers import MemberSerializer, NewRole, NewServiceAccount, NewTeam, TeamSerializer, user_of


class TeamsView(generics.ListAPIView[Team]):
    serializer_class = TeamSerializer
    pagination_class = Paging
    queryset = Team.objects.none()

    def get_queryset(self) -> QuerySet[Team]:
        return members.teams_of(user_of(self.request)).prefetch_related("memberships")

    def get_serializer_context(self) -> dict[str, object]:
        return {**super().get_serializer_context(), "user": self.request.user}

    @extend_schema(operation_id="teams_create", request=NewTeam, responses={201: TeamSerializer})
    def post(self, request: Request) -> Response:
        team = members.make_team(name=NewTeam.of(request)["name"], by=user_of(request))
        return Response(_shown(team, user_of(request)), status=201)


class TeamView(APIView):
    @extend_schema(operation_id="teams_retrieve", responses=TeamSerializer)
    def get(self, request: Request, team: str) -> Response:
        return Response(_shown(members.readable_team(user_of(request), team), user_of(request)))


class MembersView(generics.ListAPIView[Membership]):
    serializer_class = MemberSerializer
    pagination_class = Paging
    queryset = Membership.objects.none()

    def get_queryset(self) -> QuerySet[Membership]:
        return members.members_of(members.readable_team(user_of(self.request), self.kwargs["team"]))


class MemberView(APIView):
    @extend_schema(
        operation_id="members_update", request=NewRole, responses={200: MemberSerializer, 201: MemberSerializer}
    )
    def put(self, request: Request, team: str, username: str) -> Response:
        found, role = members.readable_team(user_of(request), team), NewRole.of(request)["role"]
        row, is_new = members.set_role(team=found, username=username, role=role, by=user_of(request))
        return Response(MemberSerializer(row).data, status=201 if is_new else 200)

    @extend_schema(operation_id="members_destroy", request=None, responses={204: None})
    def delete(self, request: Request, team: str, username: str) -> Response:
        found = members.readable_team(user_of(request), team)
        members.remove(team=found, username=username, by=user_of(request))
        return Response(status=204)


class ServiceAccountsView(generics.ListAPIView[Membership]):
    serializer_class = MemberSerializer
    pagination_class = Paging
    queryset = Membership.objects.none()

    def get_queryset(self) -> QuerySet[Membership]:
        return members.service_accounts_of(members.readable_team(user_of(self.request), self.kwargs["team"]))

    @extend_schema(operation_id="service_accounts_create", request=NewServiceAccount, responses={201: MemberSerializer})
    def post(self, request: Request, team: str) -> Response:
        found, sent = members.readable_team(user_of(request), team), NewServiceAccount.of(request)
        row = members.make_service_account(team=found, by=user_of(request), **sent)
        return Response(MemberSerializer(row).data, status=201)


class ServiceAccountView(APIView):
    @extend_schema(operation_id="service_accounts_destroy", request=None, responses={204: None})
    def delete(self, request: Request, team: str, username: str) -> Response:
        found = members.readable_team(user_of(request), team)
        members.remove_service_account(team=found, username=username, by=user_of(request))
        return Response(status=204)


def _shown(team: Team, user: User) -> object:
    return TeamSerializer(team, context={"user": user}).data
