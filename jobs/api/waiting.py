"""Why a job waits, and what another priority would do, as they are shown in the API."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.scheduling.waiting import Holder, Waiting
from jobs.scheduling.what_if import PriorityEffect
from queues.admission import Code


class RangeSerializer(serializers.Serializer[Any]):
    """Two moments: with the chance of four in five it is between them."""

    earliest = serializers.DateTimeField()
    latest = serializers.DateTimeField()


class HolderSerializer(serializers.Serializer[Holder]):
    id = serializers.IntegerField(source="job.pk")
    name = serializers.CharField(source="job.name")
    user = serializers.CharField(source="job.user.username")
    slots = serializers.IntegerField(source="job.slots")
    ends = serializers.SerializerMethodField(
        help_text="when it probably gives its quota back; null where nothing is known"
    )

    @extend_schema_field(RangeSerializer(allow_null=True))
    def get_ends(self, one: Holder) -> dict[str, Any] | None:
        return between(one.ends)


class WaitingSerializer(serializers.Serializer[Waiting]):
    code = serializers.ChoiceField(choices=[one.value for one in Code], source="reason.code")
    sentence = serializers.CharField()
    numbers = serializers.DictField(
        source="reason.numbers",
        child=serializers.JSONField(),
        help_text="needs, free and quota by resource; ahead, job and more",
    )
    position = serializers.IntegerField(
        allow_null=True, help_text="in its queue, counted from 1; null: it is not its turn that it waits for"
    )
    starts = serializers.SerializerMethodField(help_text="when it may start; null where that is not known")
    unknown = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="jobs without a deadline, progress or others like them, on which its start depends",
    )
    holders = HolderSerializer(many=True, help_text="the largest jobs that hold quota of the queue")

    @extend_schema_field(RangeSerializer(allow_null=True))
    def get_starts(self, one: Waiting) -> dict[str, Any] | None:
        return between(one.starts)


class PrioritySerializer(serializers.Serializer[Any]):
    priority = serializers.IntegerField(help_text="of the jobs that wait in a queue those with a higher one come first")


class PriorityEffectSerializer(serializers.Serializer[PriorityEffect]):
    effects = serializers.ListField(
        source="sentences", child=serializers.CharField(), help_text="what it would do to this job and to others"
    )
    waiting = WaitingSerializer(
        source="waits", allow_null=True, help_text="how it would wait; null if it does not wait, or would start at once"
    )


def between(times: Any) -> dict[str, Any] | None:
    return None if times is None else dict(RangeSerializer({"earliest": times[0], "latest": times[1]}).data)
