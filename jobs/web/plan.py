"""What a submission would start, in words: the plan on the submit page."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import InvalidInput
from jobs import clusters
from jobs.core import pod_fields
from jobs.core.plan import Endpoint, First, FirstRank, Here, Host, Index, Launch, Port, Role, Value
from jobs.models import Job
from jobs.services import Preview
from jobs.submission.pods import roles_of
from jobs.submission.resolving import with_cluster
from queues.resources import describe
from queues.shape import ReplicaShape

MOST_COMMAND = 300  # characters of a command


@dataclass(frozen=True)
class RoleRow:
    """One role as displayed: its replicas, the ranks in them, what each takes and runs."""

    name: str
    replicas: int
    ranks: str
    takes: str
    command: str
    variables: list[tuple[str, str]]  # how its replicas find the others
    pod: list[tuple[str, str]]  # what its pods are, beside resources; empty where there are none


def rows(preview: Preview) -> list[RoleRow]:
    return [_row(role, resource=preview.queue.resource) for role in preview.roles]


def pods_of(job: Job) -> list[RoleRow]:
    """Return a job's roles as they are launched today; none where it has no pods, or its cluster is gone."""
    queue = job.queue
    if not clusters.is_known(queue.cluster) or not clusters.backend(queue.cluster).MAKES_PODS:
        return []
    with contextlib.suppress(InvalidInput):  # of a framework that is gone
        return [_row(role, resource=queue.resource) for role in with_cluster(roles_of(job), queue)]
    return []


def _row(role: Role, *, resource: str) -> RoleRow:
    takes = [describe({resource: role.slots})] if role.slots else []
    takes += [f"{name} {amount}" for name, amount in role.shape.needs.items()]
    words = " ".join(role.command)
    return RoleRow(
        role.name, role.replicas, _ranks(role), ", ".join(takes), words if len(words) <= MOST_COMMAND else f"{words[:MOST_COMMAND]} …",
        [(name, described(value)) for name, value in sorted(role.env.items())],
        pod(role.shape),
    )  # fmt: skip


def pod(shape: ReplicaShape) -> list[tuple[str, str]]:
    """Return what is said of pods beside their resources, each as a label and its text."""
    every = [
        ("Image", shape.image),
        ("Shared memory", shape.shm),
        ("On nodes with", _pairs(shape.node_selector)),
        ("Tolerates", ", ".join(map(pod_fields.taint, shape.tolerations))),
        ("Priority class", shape.priority_class),
        ("Scheduler", shape.scheduler),
        ("Shares", ", ".join(f"{how}s one {level}" for how, level in shape.topology.items())),
        ("Service account", shape.service_account),
        ("Runs first", _containers(shape.init_containers)),
        ("Runs beside", _containers(shape.sidecars)),
        ("Mounts", ", ".join(str(one.get("mountPath")) for one in shape.mounts)),
        ("Network", "of its node" if shape.host_network else ""),
        ("Labels", _pairs(shape.labels)),
        ("Annotations", _pairs(shape.annotations)),
        ("Working directory", shape.working_dir),
    ]
    return [(label, text) for label, text in every if text]


def _containers(given: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{one.get('name')} ({one.get('image')})" for one in given)


def _pairs(pairs: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(pairs.items()))


def _ranks(role: Role) -> str:
    last = role.first_rank + role.replicas * role.processes - 1
    if last < role.first_rank:
        return "none"
    return f"{role.first_rank}" if last == role.first_rank else f"{role.first_rank} to {last}"


def described(value: Value) -> str:
    """Return a variable's value, in words where it is known only once a replica is placed."""
    match value:
        case Host(role, index):
            return f"address of {role}-{index}"
        case Port(_, number):
            return f"{number}, on one machine a free port"
        case Endpoint(host, port):
            return f"address of {host.role}-{host.index}, port {described(port)}"
        case Index(first):
            return f"its number in its role, from {first}"
        case FirstRank():
            return "its rank"
        case Here():
            return "its own address"
        case Launch():
            return "a name of this attempt"
        case First(first, rest):
            return f"{first} in replica 0, {rest} in the others"
        case _:
            return str(value)
