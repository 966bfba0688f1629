"""/api/v1/teams/TEAM/webhooks: webhooks of a team, and their deliveries. URL and secret are never returned again."""

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.serializers import Sent
from common.http.rest import BoundedList, Paging
from jobs.models import Delivery, Webhook
from jobs.webhooks import addresses, sending, services
from jobs.webhooks.events import Choice, WebhookEvent

from .params import user_of

CHOICES = [(one.value, one.value) for one in Choice]
STATES = [(one, one) for one in ("waiting", "delivered", "gave_up")]


class WebhookSerializer(serializers.ModelSerializer[Webhook]):
    events = serializers.ListField(child=serializers.ChoiceField(choices=CHOICES))
    host = serializers.CharField(help_text="of its URL, with the port; the rest is not returned")

    class Meta:
        model = Webhook
        fields: tuple[str, ...] = (
            "id", "name", "host", "format", "events", "all_jobs", "is_active", "old_secret_until", "created_at",
        )  # fmt: skip
        read_only_fields = fields


class MadeWebhook(WebhookSerializer):
    secret = serializers.CharField(help_text="signs what is sent; returned only once")

    class Meta(WebhookSerializer.Meta):
        fields = (*WebhookSerializer.Meta.fields, "secret")
        read_only_fields = fields


class WebhookFields(Sent):
    """What may be changed; fields left out stay as they are."""

    url = serializers.CharField(
        required=False, max_length=addresses.MOST_CHARACTERS, write_only=True, help_text="https://, without a password"
    )
    format = serializers.ChoiceField(required=False, choices=Webhook.Format.choices)
    events = BoundedList(
        required=False, child=serializers.ChoiceField(choices=CHOICES), allow_empty=False, max_length=len(CHOICES)
    )
    all_jobs = serializers.BooleanField(required=False, help_text="false: only jobs that name it in `notify`")


class WebhookChange(WebhookFields):
    is_active = serializers.BooleanField(required=False, help_text="false gives up what waits")


class NewWebhook(WebhookFields):
    name = serializers.RegexField(
        r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?\Z",
        trim_whitespace=False,
        help_text="1 to 40 of a-z, 0-9 and -, not beginning or ending with -; jobs name it, so it cannot be changed",
    )
    url = serializers.CharField(
        max_length=addresses.MOST_CHARACTERS, write_only=True, help_text="https://, without a password"
    )
    events = BoundedList(
        child=serializers.ChoiceField(choices=CHOICES), allow_empty=False, max_length=len(CHOICES),
        help_text="events that it receives: start, end (however it ends), failure (also of an attempt that is tried again)",
    )  # fmt: skip


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    message_id = serializers.SerializerMethodField(help_text="the header webhook-id, the same at every try")
    event = serializers.ChoiceField(choices=[(one.value, one.value) for one in WebhookEvent])
    state = serializers.ChoiceField(choices=STATES)
    job = serializers.IntegerField(source="job_id", allow_null=True, help_text="null: a test")
    status_code = serializers.IntegerField(allow_null=True, help_text="of the newest answer; null: there was none")

    class Meta:
        model = Delivery
        fields = (
            "id", "message_id", "event", "job", "attempt", "state", "tries", "status_code", "error", "created_at",
            "next_try_at", "delivered_at", "gave_up_at",
        )  # fmt: skip
        read_only_fields = fields

    def get_message_id(self, row: Delivery) -> str:
        return sending.message_id(row)


class WebhooksView(generics.ListAPIView[Webhook]):
    serializer_class = WebhookSerializer
    pagination_class = Paging
    queryset = Webhook.objects.none()

    def get_queryset(self) -> QuerySet[Webhook]:
        return services.of_team(user_of(self.request), self.kwargs["team"])[1]

    @extend_schema(operation_id="webhooks_create", request=NewWebhook, responses={201: MadeWebhook})
    def post(self, request: Request, team: str) -> Response:
        found, _ = services.of_team(user_of(request), team)
        webhook, secret = services.create(team=found, by=user_of(request), **NewWebhook.of(request))
        return _with_secret(webhook, secret, 201)


class WebhookView(APIView):
    @extend_schema(operation_id="webhooks_retrieve", responses=WebhookSerializer)
    def get(self, request: Request, team: str, name: str) -> Response:
        return Response(WebhookSerializer(services.one_of(user_of(request), team, name)).data)

    @extend_schema(operation_id="webhooks_update", request=WebhookChange, responses=WebhookSerializer)
    def patch(self, request: Request, team: str, name: str) -> Response:
        webhook, sent = services.one_of(user_of(request), team, name), WebhookChange.of(request)
        return Response(WebhookSerializer(services.change(webhook=webhook, by=user_of(request), **sent)).data)

    @extend_schema(operation_id="webhooks_destroy", request=None, responses={204: None})
    def delete(self, request: Request, team: str, name: str) -> Response:
        services.remove(webhook=services.one_of(user_of(request), team, name), by=user_of(request))
        return Response(status=204)


class RotateView(APIView):
    """A new secret; the one before signs as well for 24 hours."""

    @extend_schema(operation_id="webhooks_rotate", request=None, responses=MadeWebhook)
    def post(self, request: Request, team: str, name: str) -> Response:
        found = services.one_of(user_of(request), team, name)
        return _with_secret(*services.rotate(webhook=found, by=user_of(request)))


class PingView(APIView):
    """Send a test, which is a delivery like any other."""

    @extend_schema(operation_id="webhooks_test", request=None, responses={202: DeliverySerializer})
    def post(self, request: Request, team: str, name: str) -> Response:
        found = services.one_of(user_of(request), team, name)
        return Response(DeliverySerializer(services.ping(webhook=found, by=user_of(request))).data, status=202)


class DeliveriesView(generics.ListAPIView[Delivery]):
    serializer_class = DeliverySerializer
    pagination_class = Paging
    queryset = Delivery.objects.none()

    def get_queryset(self) -> QuerySet[Delivery]:
        found = services.one_of(user_of(self.request), self.kwargs["team"], self.kwargs["name"])
        return found.deliveries.order_by("-id")


class AgainView(APIView):
    """Send a delivery once more, whatever became of it; it keeps its id."""

    @extend_schema(operation_id="deliveries_again", request=None, responses={202: DeliverySerializer})
    def post(self, request: Request, team: str, name: str, pk: int) -> Response:
        found = services.one_of(user_of(request), team, name)
        row = get_object_or_404(found.deliveries.select_related("webhook__team"), pk=pk)
        return Response(DeliverySerializer(services.send_again(delivery=row, by=user_of(request))).data, status=202)


def _with_secret(webhook: Webhook, secret: str, status: int = 200) -> Response:
    answer: dict[str, Any] = {**WebhookSerializer(webhook).data, "secret": secret}
    return Response(answer, status=status, headers={"Cache-Control": "no-store"})
