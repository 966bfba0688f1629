"""/api/v1/teams/TEAM/volumes: shared folders of a team. Here and not in `volumes`, which knows no cluster."""

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.permissions import Act, require
from accounts.serializers import Sent
from common.http.rest import Paging
from jobs.submission import storage
from volumes import services
from volumes.models import AccessMode, State, Volume

from .params import user_of


class VolumeSerializer(serializers.ModelSerializer[Volume]):
    access_mode = serializers.ChoiceField(choices=AccessMode.choices)
    state = serializers.ChoiceField(choices=State.choices)
    claim = serializers.SerializerMethodField(
        help_text="its claim in the cluster; empty where it is a folder of a machine"
    )
    is_adopted = serializers.SerializerMethodField(help_text="whether the claim existed before, and stays")
    used_by = serializers.SerializerMethodField(help_text="open jobs and queues that name it")
    as_of = serializers.DateTimeField(source="used_at", allow_null=True, help_text="when size and last write were seen")

    class Meta:
        model = Volume
        fields = (
            "name", "cluster", "claim", "is_adopted", "size", "storage_class", "access_mode", "mount_path", "is_read_only",
            "state", "capacity", "message", "checked_at", "total_bytes", "free_bytes", "written_at", "as_of", "used_by",
            "created_at",
        )  # fmt: skip
        read_only_fields = fields

    def get_claim(self, row: Volume) -> str:
        return row.claim_name if storage.has_claims(row.cluster) else ""

    def get_is_adopted(self, row: Volume) -> bool:
        return bool(row.claim)

    def get_used_by(self, row: Volume) -> list[str]:
        return services.used_by(row)


class VolumeChange(Sent):
    """What may be changed; fields left out stay as they are. A volume grows and never shrinks."""

    size = serializers.CharField(required=False, max_length=30, help_text="such as 512Gi")
    mount_path = serializers.CharField(required=False, allow_blank=True, max_length=255)
    is_read_only = serializers.BooleanField(required=False)


class NewVolume(Sent):
    name = serializers.CharField(max_length=200, trim_whitespace=False, help_text="1 to 40 of a-z, 0-9 and -")
    cluster = serializers.CharField(max_length=40)
    size = serializers.CharField(required=False, max_length=30, help_text="such as 512Gi; not for an existing claim")
    claim = serializers.CharField(
        required=False, max_length=253, help_text="an existing claim that the team may name; empty: one of Muster's own"
    )
    storage_class = serializers.CharField(required=False, max_length=253, help_text="empty: the cluster's default")
    access_mode = serializers.CharField(required=False, max_length=20, help_text=", ".join(AccessMode.values))
    mount_path = serializers.CharField(required=False, max_length=255, help_text="empty: /muster/volumes/NAME")
    is_read_only = serializers.BooleanField(required=False)


class VolumesView(generics.ListAPIView[Volume]):
    serializer_class = VolumeSerializer
    pagination_class = Paging
    queryset = Volume.objects.none()

    def get_queryset(self) -> QuerySet[Volume]:
        return services.of_team(user_of(self.request), self.kwargs["team"])[1]

    @extend_schema(operation_id="volumes_create", request=NewVolume, responses={201: VolumeSerializer})
    def post(self, request: Request, team: str) -> Response:
        found, _ = services.of_team(user_of(request), team)
        require(user_of(request), Act.MANAGE, found)
        sent = NewVolume.of(request)
        storage.check(sent, cluster=sent["cluster"])
        row = services.create(team=found, by=user_of(request), **sent)
        return Response(VolumeSerializer(row).data, status=201)


class VolumeView(APIView):
    @extend_schema(operation_id="volumes_retrieve", responses=VolumeSerializer)
    def get(self, request: Request, team: str, name: str) -> Response:
        return Response(VolumeSerializer(services.one_of(user_of(request), team, name)).data)

    @extend_schema(operation_id="volumes_update", request=VolumeChange, responses=VolumeSerializer)
    def patch(self, request: Request, team: str, name: str) -> Response:
        row = services.one_of(user_of(request), team, name)
        require(user_of(request), Act.MANAGE, row.team)
        sent = VolumeChange.of(request)
        storage.check(sent, cluster=row.cluster)
        services.change(volume=row, by=user_of(request), **sent)
        return Response(VolumeSerializer(services.one_of(user_of(request), team, name)).data)

    @extend_schema(operation_id="volumes_destroy", request=None, responses={202: VolumeSerializer})
    def delete(self, request: Request, team: str, name: str) -> Response:
        """Ask for its deletion, with its data where the claim is Muster's own."""
        row = services.remove(volume=services.one_of(user_of(request), team, name), by=user_of(request))
        return Response(VolumeSerializer(row).data, status=202)
