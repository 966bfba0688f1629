"""/api/v1/quota-requests: requests for more quota."""

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import members
from accounts.serializers import Sent
from common.errors import InvalidInput, Problem
from common.http.rest import Paging
from queues import requests
from queues.models import QuotaRequest
from queues.readable import readable_queues

from .params import query, user_of

VERDICTS = ("grant", "decline")


class QuotaRequestSerializer(serializers.ModelSerializer[QuotaRequest]):
    """`slots` and `granted` are in all, not how many more."""

    team = serializers.CharField(source="team.name")
    queue = serializers.CharField(source="queue.name", allow_null=True, default=None)
    flavor = serializers.CharField(source="flavor.name", allow_null=True, default=None)
    slots = serializers.IntegerField(source="wanted")
    asked_by = serializers.CharField(source="asked_by.username", allow_null=True, default=None)
    decided_by = serializers.CharField(source="decided_by.username", allow_null=True, default=None)
    words = serializers.SerializerMethodField(help_text="what is asked for, as text")

    class Meta:
        model = QuotaRequest
        fields = (
            "id", "team", "queue", "flavor", "has", "slots", "why", "asked_at", "asked_by", "state", "granted", "answer",
            "decided_at", "decided_by", "words",
        )  # fmt: skip
        read_only_fields = fields

    def get_words(self, row: QuotaRequest) -> str:
        return requests.described(row)


class NewQuotaRequest(Sent):
    queue = serializers.CharField(required=False, max_length=40, help_text="of which there should be more")
    team = serializers.CharField(required=False, max_length=60, help_text="with `flavor`, instead of a queue")
    flavor = serializers.CharField(required=False, max_length=40)
    slots = serializers.IntegerField(min_value=1, max_value=requests.MOST_SLOTS, help_text="in all")
    why = serializers.CharField(max_length=requests.MOST_WORDS, help_text="read by who decides")


class QuotaVerdict(Sent):
    verdict = serializers.ChoiceField(choices=VERDICTS)
    slots = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=requests.MOST_SLOTS,
        help_text="in all; without it as many as were asked for",
    )
    answer = serializers.CharField(required=False, max_length=requests.MOST_WORDS, help_text="needed to decline")


class QuotaRequestsView(generics.ListAPIView[QuotaRequest]):
    """Requests of one's teams, the newest first."""

    serializer_class = QuotaRequestSerializer
    pagination_class = Paging
    queryset = QuotaRequest.objects.none()

    def get_queryset(self) -> QuerySet[QuotaRequest]:
        found, state = requests.readable(user_of(self.request)), self.request.query_params.get("state")
        if state is not None and state not in QuotaRequest.State.values:
            raise InvalidInput(Problem("state", state, f"must be one of {', '.join(QuotaRequest.State.values)}"))
        return found if state is None else found.filter(state=state)

    @extend_schema(
        operation_id="quota_requests_list",
        parameters=[query("state", str, "only open, granted, declined or withdrawn")],
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="quota_requests_create", request=NewQuotaRequest, responses={201: QuotaRequestSerializer}
    )
    def post(self, request: Request) -> Response:
        """Ask for more of a queue, or of what a team has of a flavor."""
        sent, subject = NewQuotaRequest.of(request), dict[str, Any]()
        if name := sent.get("queue"):
            subject["queue"] = readable_queues(user_of(request)).filter(name=name).first()
            if subject["queue"] is None:
                raise InvalidInput(Problem("queue", name, "is no queue that you may see; `muster queues` lists them"))
        if name := sent.get("team"):
            subject["team"] = members.readable_team(user_of(request), name)
        row = requests.ask(by=user_of(request), **{**sent, **subject})
        return Response(QuotaRequestSerializer(row).data, status=201)


class QuotaRequestView(APIView):
    @extend_schema(operation_id="quota_requests_decide", request=QuotaVerdict, responses=QuotaRequestSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Grant or decline: administrators of the team for a queue, those of the platform for a flavor."""
        sent, row = QuotaVerdict.of(request), _one(request, pk)
        words = {"request": row, "by": user_of(request), "answer": sent.get("answer", "")}
        if sent["verdict"] == "grant":
            return Response(QuotaRequestSerializer(requests.grant(slots=sent.get("slots"), **words)).data)
        return Response(QuotaRequestSerializer(requests.decline(**words)).data)

    @extend_schema(operation_id="quota_requests_withdraw", request=None, responses={200: QuotaRequestSerializer})
    def delete(self, request: Request, pk: int) -> Response:
        """Take back what one asked for, or what one's team did as its administrator."""
        row = requests.withdraw(request=_one(request, pk), by=user_of(request))
        return Response(QuotaRequestSerializer(row).data)


def _one(request: Request, pk: int) -> QuotaRequest:
    return get_object_or_404(requests.readable(user_of(request)), pk=pk)
