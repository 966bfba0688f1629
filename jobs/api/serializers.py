"""The shapes of /api/v1 for jobs. Output only reads; input is checked by `jobs.core.spec` and `services`."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from common.http.rest import BoundedList
from jobs import frameworks
from jobs.analysis import failures
from jobs.analysis.progress import progress
from jobs.core import exits, pod_fields
from jobs.core import unexpected_ranks as unexpected
from jobs.core.failure_kinds import Certainty, Kind
from jobs.core.fields import FIELDS, Field, Type
from jobs.core.lifecycle import Phase
from jobs.core.shell_words import MAX_WORDS
from jobs.core.verdict import ENDED
from jobs.models import Checkpoint, Job, JobEvent, Rank, RankState, Replica
from jobs.scheduling import waiting

from .waiting import WaitingSerializer

NUMBER_AS_TEXT = {"type": "string", "pattern": r"^-?[0-9]{1,18}$"}  # as forms and command lines send it


# Fields whose entries are no text alone.
_OBJECTS: dict[str, dict[str, Any]] = {
    "tolerations": {
        "type": "array",
        "items": {"anyOf": [{"type": "object", "additionalProperties": {}}, {"type": "string"}]},
    },
    "roles": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {}}},
}


def _schema(field: Field) -> dict[str, Any]:
    """Return a field's JSON schema for OpenAPI."""
    if field.type is Type.WHOLE:
        bounds = {"minimum": field.least, "maximum": field.most, "default": field.default}
        given = {name: value for name, value in bounds.items() if value is not None}
        return {"anyOf": [{"type": "integer", **given}, NUMBER_AS_TEXT]}
    if field.is_numbers:
        number = {"type": "integer", "minimum": field.least, "maximum": field.most}
        return {"anyOf": [{"type": "array", "items": {"anyOf": [number, NUMBER_AS_TEXT]}}, {"type": "string"}]}
    if field.type is Type.LIST and field.name not in FIELDS:  # a command: words, or one text that is split into them
        return {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}
    if field.name in _OBJECTS:
        return _OBJECTS[field.name]
    inner = {"items": {"type": "string"}} if field.type is Type.LIST else {"additionalProperties": {"type": "string"}}
    return {"type": field.type.value, **inner}


def _input(field: Field) -> serializers.Field[Any, Any, Any, Any]:
    """Return the serializer field of a job's field. It takes any JSON: `spec.parse` reports every problem at once."""
    if field.name == "command":
        child = serializers.CharField(allow_blank=True, trim_whitespace=False)
        return BoundedList(child=child, allow_empty=True, max_length=MAX_WORDS, help_text=field.help)
    if field.type is Type.TEXT:
        options = {"allow_blank": True, "allow_null": True} if field.default is None else {"max_length": 40}
        text = serializers.CharField(required=False, trim_whitespace=False, help_text=field.help, **options)
        if field.choices:
            extend_schema_field({"type": "string", "enum": list(field.choices)})(text)  # type: ignore[type-var]
        return text
    anything = serializers.JSONField(required=False, write_only=field.is_secret, help_text=field.help)
    extend_schema_field(_schema(field))(anything)  # type: ignore[type-var]  # marks instances as well as classes
    return anything


class SubmitSerializer(serializers.Serializer[Any]):
    """A job to run: its queue, its code, and the fields of `GET /job-fields`; `gpus` may replace `nodes` and `nproc_per_node`."""

    queue = serializers.CharField(max_length=40, trim_whitespace=False)
    workspace = serializers.IntegerField(required=False, allow_null=True)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        own = {name: field for options in frameworks.OPTIONS.values() for name, field in options.items()}
        return {**super().get_fields(), **{field.name: _input(field) for field in {**own, **FIELDS}.values()}}


class JobFieldSerializer(serializers.Serializer[Any]):
    """One field of a job, as the server checks it."""

    name = serializers.CharField()
    framework = serializers.CharField(allow_null=True, help_text="the framework whose jobs have it; null: every job")
    type = serializers.ChoiceField(choices=[kind.value for kind in Type])
    minimum = serializers.IntegerField(source="least", allow_null=True)
    maximum = serializers.IntegerField(source="most", allow_null=True)
    default = serializers.JSONField(help_text="of queues without their own; null: none")
    help = serializers.CharField()
    remedy = serializers.CharField(help_text="how to correct a refused value")


KINDS = [(kind.value, kind.value) for kind in Kind]  # named in the schema: controlplane/settings.py


class FailureSerializer(serializers.Serializer[Any]):
    rank = serializers.IntegerField(allow_null=True)
    replica = serializers.CharField()
    exit_code = serializers.IntegerField(allow_null=True)
    signal = serializers.IntegerField(allow_null=True)
    at = serializers.DateTimeField(allow_null=True)
    kind = serializers.ChoiceField(choices=KINDS, help_text="the kind of failure; docs/verdicts.md says what to do")
    headline = serializers.CharField(help_text="the error itself in one line")
    hint = serializers.CharField(help_text="what to change, where the error itself does not say it; empty for most")
    certainty = serializers.ChoiceField(choices=[one.value for one in Certainty])
    explanation = serializers.CharField(help_text="the end in words")
    traceback = serializers.ListField(
        child=serializers.CharField(), help_text="lines of the traceback, first cause first; empty in lists of jobs"
    )
    traceback_rank = serializers.IntegerField(
        allow_null=True,
        help_text="the rank whose traceback it is; if the named rank printed none, a rank that waited for it",
    )
    last_lines = serializers.ListField(
        child=serializers.CharField(), help_text="the traceback, or without one the last lines that were printed"
    )
    after_end = serializers.BooleanField(
        help_text="it became this one by reports that came after the attempt had ended"
    )
    node = serializers.CharField(help_text="the node that it blames, which retries avoid; empty for most")


class RankCounts(serializers.Serializer[Any]):
    total = serializers.IntegerField()
    waiting = serializers.IntegerField()
    running = serializers.IntegerField()
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField()


class ProgressSerializer(serializers.Serializer[Any]):
    step = serializers.IntegerField()
    total = serializers.IntegerField(help_text="the number of steps that the job reported")
    seconds_left = serializers.FloatField(allow_null=True, help_text="by its recent speed; null where it is not known")


class _PodText(serializers.CharField):
    """A field of the job's pods that is text, as submitted; empty where nothing was said."""

    def get_attribute(self, instance: Job) -> str:
        return str(instance.spec.get(self.field_name, ""))


class _PodValue(serializers.JSONField):
    """One that is a mapping or a list."""

    def get_attribute(self, instance: Job) -> Any:
        return instance.spec.get(self.field_name, [] if FIELDS[str(self.field_name)].type is Type.LIST else {})


def _pod_field(field: Field) -> serializers.Field[Any, Any, Any, Any]:
    if field.type is Type.TEXT:
        return _PodText(read_only=True, help_text=field.help)
    found = _PodValue(read_only=True, help_text=field.help)
    extend_schema_field(_schema(field))(found)  # type: ignore[type-var]  # marks instances as well as classes
    return found


class JobSerializer(serializers.ModelSerializer[Job]):
    team = serializers.CharField(source="team.name")
    queue = serializers.CharField(source="queue.name")
    user = serializers.CharField(source="user.username")
    framework = serializers.CharField(source="spec.framework")
    phase = serializers.ChoiceField(choices=[phase.value for phase in Phase])
    reason = serializers.CharField(source="stop_reason")
    message = serializers.CharField(source="current_message", help_text="the last step, or why the job is waiting")
    max_retries = serializers.IntegerField(source="spec.max_retries")
    on_failure = serializers.CharField(help_text="what happens when a replica fails, in words")
    retry_on = serializers.SerializerMethodField(
        help_text="exit codes after which alone it is retried; empty: after any"
    )
    never_retry_on = serializers.SerializerMethodField(help_text="exit codes after which it is not retried")
    removal_at = serializers.DateTimeField(
        allow_null=True, help_text="from when it is removed; null while it has not ended, and without ttl_seconds"
    )
    command = serializers.ListField(child=serializers.CharField())
    env = serializers.DictField(source="spec.env", child=serializers.CharField())
    secrets = serializers.SerializerMethodField(help_text="names only")
    volumes = serializers.SerializerMethodField()
    template_version = serializers.IntegerField(
        source="template.number",
        allow_null=True,
        default=None,
        help_text="of its queue's template, when it was submitted",
    )
    team_secrets = serializers.SerializerMethodField(
        help_text="names of its team's secrets, with a path where it chose one"
    )
    notify = serializers.SerializerMethodField(help_text="names of the webhooks that it names")
    workspace = serializers.IntegerField(source="workspace_id", allow_null=True)
    nodes = serializers.IntegerField()
    min_nodes = serializers.IntegerField(allow_null=True, help_text="the minimum with which an elastic job continues")
    nproc_per_node = serializers.IntegerField()
    layout = serializers.CharField(
        help_text="its replicas and the ranks in each, in words: `2 × 4`, `2 worker + 1 helper`"
    )
    options = serializers.SerializerMethodField(
        help_text="the fields that only jobs of its framework have, as submitted"
    )
    ranks = serializers.SerializerMethodField()
    progress = serializers.SerializerMethodField(help_text="of a job that reports total_steps (muster.report)")
    first_failure = serializers.SerializerMethodField()
    waiting = serializers.SerializerMethodField(
        help_text="why a queued job waits and until when; null for others, and in lists"
    )
    url = serializers.SerializerMethodField(help_text="its page")

    class Meta:
        model = Job
        fields = (
            "id", "name", "team", "queue", "user", "framework", "phase", "reason", "message", "priority", "attempt",
            "failures", "max_retries", "on_failure", "retry_on", "never_retry_on", "nodes", "min_nodes", "nproc_per_node", "layout", "options", "command", "env", "secrets", "team_secrets", "template_version", "volumes", "notify", "workspace", "suspended", "cancel_requested_at", "cancel_now_at", "created_at",
            "admitted_at", "running_at", "finished_at", "ttl_seconds", "removal_at", "phase_since", "is_finished", "ranks", "progress", "first_failure", "waiting", "url",
        )  # fmt: skip
        read_only_fields = fields

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {**super().get_fields(), **{name: _pod_field(FIELDS[name]) for name in (*pod_fields.NAMES, "roles")}}

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_volumes(self, job: Job) -> list[str]:
        return list(job.spec.get("volumes", []))

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_team_secrets(self, job: Job) -> list[str]:
        return list(job.spec.get("team_secrets", []))

    def get_notify(self, job: Job) -> list[str]:
        return list(job.spec.get("notify", []))

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_secrets(self, job: Job) -> list[str]:
        return list(job.spec.get("secrets", []))

    @extend_schema_field(serializers.ListField(child=serializers.IntegerField()))
    def get_retry_on(self, job: Job) -> list[int]:
        return list(job.spec.get("retry_on", []))

    @extend_schema_field(serializers.ListField(child=serializers.IntegerField()))
    def get_never_retry_on(self, job: Job) -> list[int]:
        return list(job.spec.get("never_retry_on", []))

    @extend_schema_field({"type": "object", "additionalProperties": {}})
    def get_options(self, job: Job) -> dict[str, Any]:
        return dict(job.spec.get("options", {}))

    @extend_schema_field(RankCounts)
    def get_ranks(self, job: Job) -> dict[str, int]:
        counts = self.context.get("rank_counts") or (rank_counts([job]) if job.attempt else {})
        mine = counts.get(job.pk, {})
        total = max(job.world_size, sum(mine.values()))  # a command may start more than were planned
        return {"total": total, **{state: mine.get(state, 0) for state in RankState.values}}

    @extend_schema_field(ProgressSerializer(allow_null=True))
    def get_progress(self, job: Job) -> dict[str, Any] | None:
        found = self.context["progress"] if "progress" in self.context else progress([job])
        return ProgressSerializer(found[job.pk]).data if job.pk in found else None

    @extend_schema_field(FailureSerializer(allow_null=True))
    def get_first_failure(self, job: Job) -> dict[str, Any] | None:
        if "failures" in self.context:  # a list: without lines, and no failure is judged here
            failure = self.context["failures"].get(job.pk)
        else:
            failure = failures.first_failure(job) if job.attempt else None
        return dict(FailureSerializer(failure).data) if failure else None

    @extend_schema_field(WaitingSerializer(allow_null=True))
    def get_waiting(self, job: Job) -> dict[str, Any] | None:
        if job.phase != Phase.QUEUED or "failures" in self.context:
            return None
        found = waiting.of_job(job)
        return dict(WaitingSerializer(found).data) if found and found.reason else None

    @extend_schema_field(serializers.URLField())
    def get_url(self, job: Job) -> str:
        request = self.context.get("request")
        return request.build_absolute_uri(job.get_absolute_url()) if request else job.public_url


def rank_counts(jobs: list[Job]) -> dict[int, dict[str, int]]:
    """Return how many ranks of each job's newest attempt are in which state; one query for all."""
    from django.db.models import Count, F

    rows = (
        Rank.objects.filter(job__in=jobs, attempt=F("job__attempt"))
        .order_by()
        .values_list("job_id", "state")
        .annotate(count=Count("id"))
    )
    found: dict[int, dict[str, int]] = {}
    for job, state, count in rows:
        found.setdefault(job, {})[state] = count
    return found


class RankSerializer(serializers.ModelSerializer[Rank]):
    replica = serializers.SerializerMethodField()
    node = serializers.CharField(source="replica.node")
    ending = serializers.SerializerMethodField(help_text="how it ended; empty while it is running")
    is_unseen = serializers.SerializerMethodField(help_text="its replica is over, and the rank was never reported")

    class Meta:
        model = Rank
        fields = (
            "attempt", "rank", "local_rank", "world_rank", "world_size", "replica", "node", "state", "step", "exit_code", "signal", "ending", "cpu", "rss_bytes",
            "gpu", "gpu_mem_bytes", "gpu_mem_total_bytes", "gpu_watts", "gpu_celsius", "gpu_ecc_errors", "gpu_xid", "nan_series", "nan_step", "last_line_at", "lines", "started_at", "ended_at", "is_stopped", "is_connection_error", "is_unseen",
        )  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(serializers.BooleanField())
    def get_is_unseen(self, rank: Rank) -> bool:
        return rank.state == RankState.WAITING and rank.replica.state in ENDED

    @extend_schema_field(serializers.CharField())
    def get_replica(self, rank: Rank) -> str:
        return f"{rank.replica.role}-{rank.replica.index}"

    @extend_schema_field(serializers.CharField())
    def get_ending(self, rank: Rank) -> str:
        return exits.brief(rank.exit_code, rank.signal) if rank.ended_at else ""


class UnexpectedRankSerializer(serializers.Serializer[Any]):
    rank = serializers.IntegerField()
    local_rank = serializers.IntegerField(allow_null=True)
    state = serializers.CharField(
        allow_null=True, help_text="as reported by its agent; null if only its output is known"
    )
    exit_code = serializers.IntegerField(allow_null=True)
    signal = serializers.IntegerField(allow_null=True)


class NodeSerializer(serializers.Serializer[Any]):
    """A node of a framework's own cluster; amounts are [in use, in total]."""

    name = serializers.CharField(help_text="the replica that it is, such as worker-0")
    cpu = serializers.ListField(child=serializers.FloatField(), required=False)
    gpu = serializers.ListField(child=serializers.FloatField(), required=False)
    object_store_bytes = serializers.ListField(child=serializers.FloatField(), required=False)
    actors = serializers.IntegerField(required=False)


class NodesSerializer(serializers.Serializer[Any]):
    framework = serializers.CharField(help_text="its name and version, such as Ray 2.60.0")
    nodes = NodeSerializer(many=True)
    waiting = serializers.IntegerField(required=False, help_text="tasks and actors for which no node has room now")
    actors_waiting = serializers.IntegerField(required=False)


class ReplicaSerializer(serializers.ModelSerializer[Replica]):
    nodes = NodesSerializer(
        allow_null=True, help_text="the nodes of a Ray job's cluster, with its head's replica; else null"
    )
    ending = serializers.SerializerMethodField(help_text="how it ended; empty while it is running")
    last_heard_at = serializers.DateTimeField(
        source="last_batch_at", allow_null=True, help_text="when its agent sent its last batch"
    )
    topology = serializers.DictField(
        child=serializers.CharField(), allow_null=True,
        help_text="its node's values of the levels that its queue's template names; null: not looked up",
    )  # fmt: skip
    is_silent = serializers.SerializerMethodField(
        help_text="running, but its agent has sent nothing for a minute: it is stopped, or cannot reach the control plane"
    )
    unexpected_ranks = serializers.SerializerMethodField(
        help_text="ranks that its agent reported although the replica does not have them; their lines are in the launcher's log"
    )

    class Meta:
        model = Replica
        fields = (
            "attempt", "role", "index", "name", "node", "state", "reason", "exit_code", "signal", "ending", "started_at", "ended_at",
            "unexpected_ranks", "last_heard_at", "is_silent", "nodes", "topology",
        )  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(serializers.BooleanField())
    def get_is_silent(self, replica: Replica) -> bool:
        return replica.silent_for(timezone.now()) is not None

    @extend_schema_field(UnexpectedRankSerializer(many=True))
    def get_unexpected_ranks(self, replica: Replica) -> list[dict[str, Any]]:
        return list(UnexpectedRankSerializer(unexpected.rows(replica.unexpected_ranks), many=True).data)

    @extend_schema_field(serializers.CharField())
    def get_ending(self, replica: Replica) -> str:
        return exits.brief(replica.exit_code, replica.signal) if replica.ended_at else ""


class CheckpointSerializer(serializers.ModelSerializer[Checkpoint]):
    class Meta:
        model = Checkpoint
        fields = ("name", "step", "size_bytes", "written_at", "attempt", "seen_at")
        read_only_fields = fields


class EventSerializer(serializers.ModelSerializer[JobEvent]):
    user = serializers.CharField(source="user.username", default=None, allow_null=True)

    class Meta:
        model = JobEvent
        fields = ("at", "kind", "phase", "attempt", "message", "user")
        read_only_fields = fields


class ClusterEventSerializer(serializers.Serializer[Any]):
    """One of a cluster's own Events, in its words."""

    at = serializers.DateTimeField(allow_null=True, help_text="when it was last given")
    type = serializers.CharField(allow_blank=True, help_text="Normal or Warning")
    reason = serializers.CharField(allow_blank=True)
    object = serializers.CharField(help_text="what it is about: Pod/NAME")
    message = serializers.CharField(allow_blank=True)
    count = serializers.IntegerField(help_text="how often it was given")


class ClusterEventsSerializer(serializers.Serializer[Any]):
    events = ClusterEventSerializer(many=True)
    message = serializers.CharField(allow_blank=True, help_text="why there are none, or not all of them")


class LogLineSerializer(serializers.Serializer[Any]):
    rank = serializers.IntegerField(
        help_text="-1: no rank printed it, but a launcher or another program of the replica"
    )
    replica = serializers.CharField(help_text="such as worker-0; empty where a notice replaces a deleted log")
    attempt = serializers.IntegerField()
    at_ms = serializers.IntegerField(help_text="milliseconds since the epoch")
    text = serializers.CharField()
    is_gap = serializers.BooleanField()


class LogPageSerializer(serializers.Serializer[Any]):
    lines = LogLineSerializer(many=True)
    cursor = serializers.CharField()
    is_complete = serializers.BooleanField()


class FoundLineSerializer(LogLineSerializer):
    number = serializers.IntegerField(help_text="of its rank, from 0")


class FoundSerializer(serializers.Serializer[Any]):
    lines = FoundLineSerializer(many=True)
    next = serializers.CharField(help_text="`start` of the next part; empty when everything was looked through")


class SeriesSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    rank = serializers.IntegerField()
    points = serializers.ListField(child=serializers.ListField(child=serializers.FloatField(allow_null=True)))


class MetricsSerializer(serializers.Serializer[Any]):
    series = SeriesSerializer(many=True)


class AttemptSerializer(serializers.Serializer[Any]):
    attempt = serializers.IntegerField()
    started_at = serializers.DateTimeField()
    running_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    outcome = serializers.CharField(help_text="the resulting phase; admitted means that another attempt follows")
    message = serializers.CharField()
    first_failing_rank = serializers.IntegerField(allow_null=True)
    first_failure = FailureSerializer(allow_null=True)


class CancelSerializer(serializers.Serializer[Any]):
    now = serializers.BooleanField(
        default=False, help_text="without the job's grace, also of a job that is stopping already"
    )


class BulkAct(serializers.Serializer[Any]):
    act = serializers.ChoiceField(choices=["cancel", "suspend", "resume"])
    now = serializers.BooleanField(default=False, help_text="cancel without the jobs' grace period")
    ids = BoundedList(child=serializers.IntegerField(min_value=1, max_value=2**53), min_length=1, max_length=200)

    def validate(self, attrs: Any) -> Any:
        if attrs["now"] and attrs["act"] != "cancel":
            raise serializers.ValidationError({"now": f"only cancel takes it, not {attrs['act']}; omit it"})
        return attrs


class BulkResult(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    status = serializers.IntegerField(help_text="the status of the equivalent single call")
    phase = serializers.CharField(allow_null=True)
    problem = serializers.CharField(allow_null=True)


class BulkAnswer(serializers.Serializer[Any]):
    results = BulkResult(many=True)
