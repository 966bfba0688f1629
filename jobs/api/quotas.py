"""/api/v1/flavors, /cohorts and /teams/NAME/quotas: what teams have of each kind of device, and what they lend each other."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import members
from common.http.rest import listed
from jobs.scheduling.quota_use import use_of
from queues import cohorts
from queues.models import Cohort, Flavor, Resource, TeamQuota
from queues.readable import readable_clusters

from .params import sent, user_of


class FlavorSerializer(serializers.ModelSerializer[Flavor]):
    class Meta:
        model = Flavor
        fields = ("name", "cluster", "resource", "gpus_per_node", "node_selector")
        read_only_fields = fields


class FlavorFields(serializers.Serializer[Any]):
    cluster = serializers.CharField(max_length=40)
    resource = serializers.ChoiceField(choices=Resource.choices, default=Resource.GPU)
    gpus_per_node = serializers.IntegerField(default=0, min_value=0, max_value=256)
    node_selector = serializers.DictField(
        child=serializers.CharField(allow_blank=True),
        required=False,
        help_text="labels that its nodes have; all nodes without",
    )


class FlavorsView(APIView):
    @extend_schema(operation_id="flavors_list", responses=listed(FlavorSerializer))
    def get(self, request: Request) -> Response:
        clusters = readable_clusters(user_of(request))
        rows = Flavor.objects.all() if clusters is None else Flavor.objects.filter(cluster__in=clusters)
        return Response({"results": FlavorSerializer(rows, many=True).data, "next": None})


class FlavorView(APIView):
    """For platform administrators. A flavor cannot be changed: what is counted in it would mean something else."""

    @extend_schema(operation_id="flavors_make", request=FlavorFields, responses=FlavorSerializer)
    def put(self, request: Request, name: str) -> Response:
        row = cohorts.make_flavor(by=user_of(request), name=name, **sent(FlavorFields, request))
        return Response(FlavorSerializer(row).data)

    @extend_schema(operation_id="flavors_destroy", request=None, responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        cohorts.remove_flavor(by=user_of(request), name=name)
        return Response(status=204)


class CohortSerializer(serializers.ModelSerializer[Cohort]):
    above = serializers.CharField(source="parent.name", allow_null=True, default=None, help_text="null: it is a root")

    class Meta:
        model = Cohort
        fields = ("name", "above")
        read_only_fields = fields


class CohortFields(serializers.Serializer[Any]):
    above = serializers.CharField(required=False, allow_null=True, max_length=40, help_text="null: it is a root")


class CohortsView(APIView):
    @extend_schema(operation_id="cohorts_list", responses=listed(CohortSerializer))
    def get(self, request: Request) -> Response:
        rows = Cohort.objects.select_related("parent")
        return Response({"results": CohortSerializer(rows, many=True).data, "next": None})


class CohortView(APIView):
    """For platform administrators."""

    @extend_schema(operation_id="cohorts_set", request=CohortFields, responses=CohortSerializer)
    def put(self, request: Request, name: str) -> Response:
        row = cohorts.set_cohort(by=user_of(request), name=name, **sent(CohortFields, request))
        return Response(CohortSerializer(row).data)

    @extend_schema(operation_id="cohorts_destroy", request=None, responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        cohorts.remove_cohort(by=user_of(request), name=name)
        return Response(status=204)


class QuotaSerializer(serializers.Serializer[Any]):
    """A team's quota of a flavor and its use now, in devices."""

    flavor = serializers.CharField(source="quota.flavor.name")
    cohort = serializers.CharField(source="quota.cohort.name", allow_null=True, default=None)
    nominal = serializers.IntegerField(source="quota.nominal", help_text="that belongs to the team")
    borrowing_limit = serializers.IntegerField(
        source="quota.borrowing_limit", allow_null=True, help_text="beyond it at most; null: no limit"
    )
    lending_limit = serializers.IntegerField(
        source="quota.lending_limit", allow_null=True, help_text="of it to others at most; null: no limit"
    )
    weight = serializers.FloatField(source="quota.weight", help_text="its part of what is lent, relative to others'")
    version = serializers.IntegerField(source="quota.version", help_text="grows with each change")
    used = serializers.IntegerField(help_text="held by its jobs")
    borrowed = serializers.IntegerField(help_text="held beyond nominal")
    lent = serializers.IntegerField(help_text="of what the team does not use, held by others")
    waiting = serializers.IntegerField(help_text="that its waiting jobs need")
    waiting_jobs = serializers.IntegerField()


class QuotaChange(serializers.Serializer[Any]):
    """Fields left out stay as they are; a new quota needs `nominal`."""

    nominal = serializers.IntegerField(required=False, min_value=0, max_value=cohorts.MOST)
    borrowing_limit = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=cohorts.MOST)
    lending_limit = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=cohorts.MOST)
    weight = serializers.FloatField(required=False, help_text="above 0")
    cohort = serializers.CharField(
        required=False, allow_null=True, max_length=40, help_text="null: it shares with nobody"
    )
    version = serializers.IntegerField(
        required=False, min_value=0, help_text="that was seen; 409 if it is not the newest"
    )
    reason = serializers.CharField(
        required=False, allow_blank=True, max_length=200, help_text="recorded in the audit log"
    )


class QuotasView(APIView):
    @extend_schema(operation_id="quotas_list", responses=listed(QuotaSerializer))
    def get(self, request: Request, team: str) -> Response:
        found = members.readable_team(user_of(request), team)
        rows = TeamQuota.objects.filter(team=found).select_related("team", "flavor", "cohort")
        return Response({"results": QuotaSerializer(use_of(rows), many=True).data, "next": None})


class QuotaView(APIView):
    """For platform administrators."""

    @extend_schema(operation_id="quotas_set", request=QuotaChange, responses=QuotaSerializer)
    def put(self, request: Request, team: str, flavor: str) -> Response:
        found = members.readable_team(user_of(request), team)
        row = cohorts.set_quota(by=user_of(request), team=found, flavor=flavor, **sent(QuotaChange, request))
        (use,) = use_of(TeamQuota.objects.filter(pk=row.pk).select_related("team", "flavor", "cohort"))
        return Response(QuotaSerializer(use).data)

    @extend_schema(operation_id="quotas_destroy", request=None, responses={204: None})
    def delete(self, request: Request, team: str, flavor: str) -> Response:
        found = members.readable_team(user_of(request), team)
        cohorts.remove_quota(by=user_of(request), team=found, flavor=flavor)
        return Response(status=204)
