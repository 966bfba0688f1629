"""/api/v1/usage: hours times slots that teams, queues, users or jobs used."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from common.http.rest import listed
from jobs.scheduling import usage_report

from .params import query, user_of


class UsageSerializer(serializers.Serializer[Any]):
    begins = serializers.DateTimeField(help_text="of the day, or of the whole time")
    resource = serializers.CharField(help_text="what a slot stands for: gpu or cpu")
    team = serializers.CharField()
    queue = serializers.CharField(help_text="empty: over all queues")
    user = serializers.CharField(help_text="empty: over all users")
    job = serializers.IntegerField(allow_null=True, help_text="null: over all jobs")
    name = serializers.CharField(help_text="of the job")
    hours = serializers.FloatField(
        help_text="times slots, from the launch of each attempt until its replicas were gone"
    )
    lost = serializers.FloatField(help_text="of these, what failed attempts did after their last checkpoint")
    starting = serializers.FloatField(help_text="of these, until all replicas ran")
    idle = serializers.FloatField(help_text="of these, of GPUs that were idle for more than five minutes, at least")


class UsageView(APIView):
    @extend_schema(
        operation_id="usage_list",
        parameters=[
            query("by", str, "team, queue, user or job; team without it"),
            query("since", str, "first day (UTC), such as 2026-03-01; 30 days before `until` without it"),
            query("until", str, "the day after the last one; tomorrow without it"),
            query("team", str, "of one team alone"),
            query("step", str, "day: a sum for each day; without it one for the whole time"),
        ],
        responses=listed(UsageSerializer),
    )
    def get(self, request: Request) -> Response:
        """Return what was used, by the queues that you may see."""
        now = timezone.now()
        ask = usage_report.read(request.query_params.dict(), now=now)
        rows = usage_report.report(ask, reader=user_of(request), now=now)
        return Response({"results": UsageSerializer(rows, many=True).data, "next": None})
