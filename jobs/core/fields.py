"""The fields of a job as users describe it: one table with type, bounds, help and remedy.

The parser (`spec.py`), the serializer and its OpenAPI schema, the submit form, and the list that the server publishes
(`GET /api/v1/job-fields`, `muster fields`) derive from it. A new field of every job is a row here and an attribute of
`JobSpec`; one of a single framework is a row in that framework's `FIELDS`, and its value an entry of `JobSpec.options`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from . import removal, restarts

MAX_NODES = 4096
MAX_PROCESSES_PER_NODE = 256
MAX_GPUS = MAX_NODES * MAX_PROCESSES_PER_NODE
MAX_EXIT_CODE = 255


class Type(StrEnum):
    """The JSON type of a field's value. Whole numbers and commands may also be given as text, as forms send them."""

    WHOLE = "integer"
    TEXT = "string"
    LIST = "array"  # of text; as an option of a framework: a command
    MAPPING = "object"  # of names to text


@dataclass(frozen=True)
class Field:
    """`least` and `most` bound a whole number, both inclusive, or each number of a list. `default` applies where the queue
    has none of its own.

    `pattern` is what a text has to match as a whole.
    """

    name: str
    type: Type
    label: str  # in the form
    help: str
    remedy: str = ""  # what to do instead, named with every problem of its value
    least: int | None = None
    most: int | None = None
    default: int | str | None = None
    is_secret: bool = False  # accepted, never returned
    pattern: str = ""
    choices: tuple[str, ...] = ()  # of a text: the only values
    is_plain: bool = (
        False  # a list whose text is split at blanks and is no command, to which a shell's rules would apply
    )

    @property
    def is_numbers(self) -> bool:
        """Whether its value is a list of whole numbers. One text, such as `75, 137`, is taken as well."""
        return self.type is Type.LIST and self.least is not None


def whole(name: str, label: str, help: str, *, least: int, most: int, remedy: str, default: int | None = 0) -> Field:
    return Field(name, Type.WHOLE, label, help, remedy, least, most, default)


QUANTITY = r"[1-9][0-9]*(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?"  # of Kubernetes, as far as CPU and memory are written


def quantity(name: str, label: str, help: str, *, example: str, pattern: str = QUANTITY) -> Field:
    """Return a field for an amount of CPU or memory, whose help ends with the example."""
    remedy = f"use a Kubernetes quantity such as {example}"
    return Field(name, Type.TEXT, label, f"{help}, such as {example}", remedy, pattern=pattern)


def _exit_codes(name: str, label: str, help: str) -> Field:
    remedy = f"give exit codes from 1 to {MAX_EXIT_CODE}, such as 75, 137; omit it to retry after every failure"
    return Field(name, Type.LIST, label, help, remedy, least=1, most=MAX_EXIT_CODE)


_ROWS = (
    Field("command", Type.LIST, "Command", "the command's words, such as `torchrun train.py`"),
    Field("framework", Type.TEXT, "Framework", "how its processes find each other, such as torchrun", default="torchrun"),
    Field("name", Type.TEXT, "Name", "name of the job, unique in its team; generated if empty"),
    whole("nodes", "Nodes", "number of replicas; the maximum for an elastic job",
           least=1, most=MAX_NODES, remedy="use 1 for a single replica", default=1),
    whole("min_nodes", "Fewest nodes", "makes the job elastic: it continues with this minimum, and lost replicas are restarted while it runs",
           least=1, most=MAX_NODES, remedy="omit it unless the job is elastic", default=None),
    whole("nproc_per_node", "Processes per node", "processes in each replica",
           least=1, most=MAX_PROCESSES_PER_NODE, remedy="usually one process per GPU", default=1),
    whole("gpus", "GPUs", "total number of GPUs instead of nodes and nproc_per_node, split evenly over nodes of the queue's size",
           least=0, most=MAX_GPUS, remedy="omit it and set nodes and nproc_per_node", default=None),
    Field("env", Type.MAPPING, "Environment", "environment variables of every rank, as a mapping of names to text"),
    Field("secrets", Type.MAPPING, "Secrets", "further environment variables: stored encrypted, passed to the ranks, never shown again",
          is_secret=True),
    Field("team_secrets", Type.LIST, "Team secrets", "names of the team's secrets that its replicas get, as `muster secrets list` shows them: `name`, or `name:/path` for files",
          "give names separated by spaces, such as wandb"),
    Field("image", Type.TEXT, "Image", "container image of its pods in place of the queue's, such as pytorch/pytorch:2.9; it needs python3, 3.8 or later"),
    quantity("cpu", "CPU of a replica", "cores of each replica's pod, requested and at most", example="8 or 500m", pattern=""),  # checked by pod_fields.py
    quantity("memory", "Memory of a replica", "memory of each replica's pod, requested and at most", example="32Gi", pattern=""),  # checked by pod_fields.py
    quantity("shm", "Shared memory", "the most that /dev/shm holds, where DataLoader workers hand over batches; it counts as memory", example="16Gi", pattern=""),  # checked by pod_fields.py
    Field("node_selector", Type.MAPPING, "Node selector", "labels that a node must have, as a mapping such as {\"pool\": \"a100\"}"),
    Field("tolerations", Type.LIST, "Tolerations", "taints of nodes that its pods tolerate: objects of Kubernetes, or text such as gpu=true:NoSchedule"),
    Field("priority_class", Type.TEXT, "Priority class", "priority class of the cluster for its pods"),
    Field("service_account", Type.TEXT, "Service account", "service account of its pods, one of those that administrators of the platform allow the team"),
    Field("labels", Type.MAPPING, "Labels of pods", "further labels of its pods, as a mapping of keys to text"),
    Field("annotations", Type.MAPPING, "Annotations of pods", "further annotations of its pods, as a mapping of keys to text"),
    Field("working_dir", Type.TEXT, "Working directory", "where the command starts: a folder of its code, or an absolute path of the image"),
    Field("roles", Type.MAPPING, "Roles", "for single roles: image, cpu, memory, shm, node_selector, tolerations, priority_class, service_account, labels, "
          "annotations and working_dir, such as {\"head\": {\"memory\": \"16Gi\"}}"),
    Field("volumes", Type.LIST, "Volumes", "the team's shared folders: `name`, or `name:/path` if the cluster mounts them"),
    whole("max_retries", "Retries after a failure", "how many times a failed job is started again",
           least=0, most=100, remedy="use 0 for no retries"),
    Field("restart_policy", Type.TEXT, "Restart policy", "the same in the words of Kubernetes: Never is max_retries 0, OnFailure the retries that are given, "
          f"or {restarts.RETRIES_ON_FAILURE}", choices=restarts.POLICIES),
    _exit_codes("retry_on", "Retry only on exit codes", "retries only if the process that failed first ended with one of these exit codes (128 + n for signal n), such as 75"),
    _exit_codes("never_retry_on", "Never retry on exit codes", "no retry if the process that failed first ended with one of these exit codes (128 + n for signal n), such as 2"),
    Field("notify", Type.LIST, "Webhooks", "names of the team's webhooks to notify of this job, besides those that are notified of every job"),
    whole("from_job", "Begin from job", "number of an earlier job of the team whose checkpoints this one can read, at $MUSTER_FROM",
           least=1, most=2**53, remedy="omit it to start from scratch", default=None),
    whole("from_step", "Begin from step", "the step of that job to begin from, which the program gets as $MUSTER_FROM_STEP",
           least=1, most=2**53, remedy="omit it for the newest checkpoint", default=None),
    whole("priority", "Priority", "jobs with a higher priority start first within the queue",
           least=-1000, most=1000, remedy="the default is 0; higher starts first"),
    whole("grace_seconds", "Grace period, seconds", "time between the request to stop (SIGTERM) and SIGKILL, in seconds",
           least=0, most=3600, remedy="30 is usual", default=30),
    whole("start_timeout_seconds", "Start timeout, seconds", "if not all replicas are running after this time, in seconds, the job is queued again",
           least=5, most=86400, remedy="300 is usual", default=300),
    whole("deadline_seconds", "Deadline, seconds", "the job is stopped after this time, in seconds",
           least=1, most=365 * 86400, remedy="omit it for no limit", default=None),
    whole("ttl_seconds", "Removed after its end, seconds", "so long after its end, in seconds, the job is removed with its log, metrics, history and local files",
           least=1, most=removal.MOST_SECONDS, remedy="omit it to keep the job", default=None),
    whole("ignore_printed", "Ignore printed metrics", "1: no metrics are taken from lines such as `step 10: loss 2.3`, nor from TensorBoard's event files",
           least=0, most=1, remedy="use 0 to read them, 1 to ignore them"),
    whole("headless_service", "Headless Service", "1: a headless Service `<name of the job>-headless` selects the pods of each attempt, for programs that look them up by it",
           least=0, most=1, remedy="use 1 for such a Service, 0 for none"),
)  # fmt: skip

FIELDS: Mapping[str, Field] = {row.name: row for row in _ROWS}
