"""Serializers of the workspace routes, for output and the schema; input is checked by `sent` and `manifest`."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from .difference import Change
from .manifest import EXECUTABLE, LINK, Entry
from .models import Workspace


class WorkspaceSerializer(serializers.ModelSerializer[Workspace]):
    team = serializers.CharField(source="team.name")
    user = serializers.CharField(source="created_by.username", default=None, allow_null=True)

    class Meta:
        model = Workspace
        fields = ("id", "digest", "size_bytes", "files", "team", "user", "created_at")
        read_only_fields = fields


class SentEntry(serializers.Serializer[Any]):
    path = serializers.CharField(max_length=1024)
    kind = serializers.ChoiceField(["file", "link"])
    size = serializers.IntegerField(required=False, min_value=0, help_text="of a file")
    digest = serializers.RegexField(r"^[0-9a-f]{64}\Z", required=False, help_text="of a file: sha256")
    executable = serializers.BooleanField(required=False)
    target = serializers.CharField(required=False, help_text="of a link, relative")


class LeftOutSerializer(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="a folder's ends in a slash")
    files = serializers.IntegerField(min_value=0)
    size = serializers.IntegerField(min_value=0, help_text="in bytes")
    is_whole = serializers.BooleanField(help_text="false: there are more files, which were not counted")


class ManifestSerializer(serializers.Serializer[Any]):
    team = serializers.CharField(required=False, allow_null=True, help_text="required for members of several teams")
    queue = serializers.CharField(required=False, allow_null=True, help_text="or the queue the job will go to")
    base = serializers.IntegerField(required=False, allow_null=True, help_text="a workspace that this one changes")
    set = SentEntry(many=True)
    remove = serializers.ListField(child=serializers.CharField(), required=False)
    digest = serializers.RegexField(
        r"^[0-9a-f]{64}\Z", required=False, help_text="of the result; another one is refused"
    )
    left_out = LeftOutSerializer(
        many=True, required=False, allow_null=True, help_text="what was ignored in the sender's folder"
    )


class DigestsSerializer(serializers.Serializer[Any]):
    team = serializers.CharField(required=False, allow_null=True)
    queue = serializers.CharField(required=False, allow_null=True)
    digests = serializers.ListField(child=serializers.RegexField(r"^[0-9a-f]{64}\Z"))
    size_bytes = serializers.IntegerField(required=False, allow_null=True, help_text="of the whole folder")


class MissingSerializer(serializers.Serializer[Any]):
    missing = serializers.ListField(child=serializers.CharField())


class ReceivedSerializer(serializers.Serializer[Any]):
    files = serializers.IntegerField()


class EntrySerializer(serializers.Serializer[Any]):
    path = serializers.CharField()
    kind = serializers.SerializerMethodField()
    size = serializers.IntegerField()
    digest = serializers.CharField()
    executable = serializers.SerializerMethodField()
    target = serializers.CharField()

    def to_representation(self, entry: Entry) -> dict[str, Any]:
        """Return the entry without DRF's fields, which take twenty times as long for up to 100,000 entries."""
        return {
            "path": entry.path,
            "kind": self.get_kind(entry),
            "size": entry.size,
            "digest": entry.digest,
            "executable": self.get_executable(entry),
            "target": entry.target,
        }

    @extend_schema_field(serializers.ChoiceField(["file", "link"]))
    def get_kind(self, entry: Entry) -> str:
        return "link" if entry.kind == LINK else "file"

    @extend_schema_field(serializers.BooleanField())
    def get_executable(self, entry: Entry) -> bool:
        return entry.kind == EXECUTABLE


class ChangeSerializer(serializers.Serializer[Change]):
    path = serializers.CharField()
    before = EntrySerializer()
    after = EntrySerializer()
    lines = serializers.CharField(allow_null=True, help_text="a unified diff, where both are text and not too large")
    why = serializers.CharField(help_text="there are no lines")


class DifferenceSerializer(serializers.Serializer[Any]):
    added = EntrySerializer(many=True)
    removed = EntrySerializer(many=True)
    changed = ChangeSerializer(many=True)
