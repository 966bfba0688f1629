"""The shape of a verdict in /api/v1."""

from typing import Any

from rest_framework import serializers

from jobs.core.failure_kinds import Certainty, Kind

KINDS = [(kind.value, kind.value) for kind in Kind]  # named in the schema: controlplane/settings.py


class FailureSerializer(serializers.Serializer[Any]):
    rank = serializers.IntegerField(allow_null=True)
    replica = serializers.CharField()
    exit_code = serializers.IntegerField(allow_null=True)
    signal = serializers.IntegerField(allow_null=True)
    at = serializers.DateTimeField(allow_null=True)
    kind = serializers.ChoiceField(choices=KINDS, help_text="docs/verdicts.md says what to do")
    headline = serializers.CharField(help_text="the error itself in one line")
    certainty = serializers.ChoiceField(choices=[one.value for one in Certainty])
    explanation = serializers.CharField(help_text="the end in words")
    traceback = serializers.ListField(
        child=serializers.CharField(), help_text="its lines, first cause first; empty in lists of jobs"
    )
    traceback_rank = serializers.IntegerField(
        allow_null=True,
        help_text="whose traceback it is: where the named rank was silent, that of one that waited for it",
    )
    last_lines = serializers.ListField(
        child=serializers.CharField(), help_text="the traceback, or without one the last lines that were printed"
    )
