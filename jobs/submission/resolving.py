"""The description of a job in a queue: its defaults and checks, and what the queue's cluster says of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from common.errors import InvalidInput, InvalidSpec, Problem
from credentials import services as credentials
from credentials.models import Kind
from jobs import clusters, frameworks
from jobs.clusters.replica_file import secret_variable, volume_variable
from jobs.core import pod_fields, removal, restarts
from jobs.core.plan import Role, slots_of
from jobs.core.spec import JobSpec, parse
from jobs.core.volumes import mounts
from queues import excluded, rules, trees
from queues.models import Queue
from queues.resources import describe, fits
from queues.shape import ReplicaShape
from workspaces.models import Workspace

from . import command_words, pods, storage, trust

MOST_DEFAULTS = 100


@dataclass(frozen=True)
class Resolved:
    """A job's description with what it comes to: its roles, and what its cluster's machines say of them."""

    spec: JobSpec
    roles: tuple[Role, ...]
    placement: clusters.Placement


def resolve(*, queue: Queue, sent: Mapping[str, Any], workspace: Workspace | None) -> Resolved:
    """Return the frozen description of a job in this queue. Raises InvalidSpec with all problems."""
    pods.refuse_locked(queue, sent)
    spec = parse(
        sent,
        gpus_per_node=queue.gpus_per_node,
        defaults=queue.defaults
        if queue.longest_seconds is None
        else {"deadline_seconds": queue.longest_seconds, **queue.defaults},
        is_file=command_words.is_file_of(workspace),
        options=frameworks.OPTIONS,
    )
    spec = command_words.in_code(spec, workspace)
    given = frozenset({*queue.defaults, *(name for name, value in sent.items() if value is not None)})
    if "gpus" in given:
        given |= {"nodes", "nproc_per_node"}
    spec = frameworks.check(spec, given)
    _check_volumes(spec, queue)
    _check_image(spec, queue)
    _check_headless(spec, queue)
    _check_working_dir(spec, workspace)
    pods.refuse_other_nodes(queue, spec)
    _check_team_secrets(spec.team_secrets, queue)
    if problem := trust.problem(spec, queue):
        raise InvalidSpec(problem)
    if problems := pods.refusals(queue, spec, queue.template):
        raise InvalidSpec(*problems)
    roles = pods.roles_in(queue, spec)
    _check_operators(roles, spec, queue)
    if problems := storage.refusals(queue, spec, roles):
        raise InvalidSpec(*problems)
    if problem := storage.start_problem(queue, spec):
        raise InvalidSpec(problem)
    asked = {queue.resource: slots_of(roles)}
    if problems := rules.refusals(
        queue, priority=spec.priority, deadline_seconds=spec.deadline_seconds, slots=slots_of(roles)
    ):
        raise InvalidSpec(*problems)
    most = trees.most(queue)
    if not fits(asked, {queue.resource: most}):
        borrowed = " with what it may borrow" if most > queue.nominal else ""
        shape = " and ".join(f"{role.replicas} x {role.slots}" for role in roles if role.slots)
        word = "processes" if all(role.slots == role.processes for role in roles) else "slots"
        raise InvalidSpec(
            Problem(
                "nodes",
                spec.nodes,
                f"{shape} {word} need {describe(asked)}, but queue {queue.name} has {describe({queue.resource: most})} in all"
                f"{borrowed}; "
                "lower nodes or nproc_per_node",
            )
        )
    placement = _placement(roles, spec, queue)
    if placement.problem:
        raise InvalidSpec(placement.problem)
    return Resolved(spec, roles, placement)


def with_cluster(roles: Iterable[Role], queue: Queue) -> tuple[Role, ...]:
    """Return the roles with all that is said of their pods, by the cluster's own settings too; nothing without pods."""
    if not clusters.backend(queue.cluster).MAKES_PODS:
        return tuple(replace(role, shape=ReplicaShape(working_dir=role.shape.working_dir)) for role in roles)
    below = clusters.get(queue.cluster).shape
    return tuple(role.on(below) for role in roles)


def changes(spec: JobSpec, sent: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which texts of a framework's own fields it had to change, such as the name of a mesh, and what became a number."""
    found = [
        f"{name} {sent[name]} became {value}: {frameworks.OPTIONS[spec.framework][name].remedy}"
        for name, value in spec.options.items()
        if isinstance(value, str) and isinstance(sent.get(name), str) and sent[name] != value
    ]
    if policy := sent.get("restart_policy"):
        found.append(f"restart_policy {policy} became max_retries {spec.max_retries}")
    return tuple(found)


def notes(queue: Queue, spec: JobSpec) -> tuple[str, ...]:
    """Say when it will be removed; warn about open ports, and about what has no effect on processes of one machine."""
    backend, notes = clusters.backend(queue.cluster), []
    if spec.ttl_seconds is not None:
        notes.append(removal.note(spec.ttl_seconds, drain_seconds=settings.MUSTER_AGENT_DRAIN_SECONDS))
    notes += storage.start_notes(spec)
    # Pods have addresses of their own, but processes of one machine share all of its.
    if not backend.SEPARATES and (listens := frameworks.get(spec.framework).listens(spec)):
        notes.append(f"{listens} (docs/security.md)")
    if backend.MAKES_PODS and (closed := pods.closed(queue, {**spec.env, **dict.fromkeys(spec.secrets, "")})):
        notes.append(closed)
    given = {*spec.pod, *(name for fields in spec.roles.values() for name in fields)}
    own = [name for name in spec.options if name.endswith(("_cpu", "_memory"))]  # of a framework's roles
    own += ["headless_service"] if spec.headless_service else []
    if not backend.MAKES_PODS and (names := [*pod_fields.without_effect(given), *own]):
        words = f"cluster {queue.cluster} starts processes of one machine, which have no pods: {', '.join(names)} "
        notes.append(words + ("has" if len(names) == 1 else "have") + " no effect there")
    return tuple(notes)


def _check_operators(roles: Iterable[Role], spec: JobSpec, queue: Queue) -> None:
    """Refuse an object whose operator cannot make replicas here; its kind is the value of a field of the framework."""
    theirs = clusters.backend(queue.cluster).OPERATORS
    for role in roles:
        if role.operator and role.operator not in theirs:
            field = next(name for name, value in spec.options.items() if value == role.operator)
            words = f"does not exist on cluster {queue.cluster}, which starts processes of one machine; remove {field}"
            raise InvalidSpec(Problem(field, role.operator, words))


def _placement(roles: Sequence[Role], spec: JobSpec, queue: Queue) -> clusters.Placement:
    """Return what no machine of the cluster could ever take; if the machines are unknown, nothing is a problem."""
    if not clusters.backend(queue.cluster).HAS_NODES:
        return clusters.Placement()
    cluster = clusters.get(queue.cluster)
    found = cluster.placement(
        roles, resource=queue.resource, node_slots=queue.gpus_per_node, excluded=excluded.names(queue.cluster)
    )
    problems = [found.problem] if found.problem else []
    problems += [
        problem
        for role in roles
        # What the cluster's own settings allow for /dev/shm may well be more than a small role's memory.
        if role.shape.shm
        and (problem := pod_fields.shm_problem(role.on(cluster.shape).shape, f"roles.{role.name}.shm"))
    ]
    return replace(found, problem=_as_given(problems[0], spec) if problems else None)


def _as_given(problem: Problem, spec: JobSpec) -> Problem:
    """Return a problem of one role's pods at the field from which it has the value: its own, or that of all roles."""
    parts = problem.field.split(".", 2)
    if len(parts) < 3 or parts[0] != "roles" or parts[2].partition(".")[0] in spec.roles.get(parts[1], {}):
        return problem
    names = (f"{kind}_{parts[2]}" for kind in (parts[1], "host"))  # meshes have names of their own, and one size
    return replace(problem, field=next((name for name in names if name in spec.options), parts[2]))


def _check_working_dir(spec: JobSpec, workspace: Workspace | None) -> None:
    """Refuse a folder that is not in the job's code; what an image has, nobody knows here."""
    named = [("working_dir", spec.working_dir)]
    named += [(f"roles.{name}.working_dir", one.get("working_dir", "")) for name, one in spec.roles.items()]
    is_folder = command_words.is_folder_of(workspace)
    for field, path in named:
        if path and not path.startswith("/") and not is_folder(path):
            raise InvalidSpec(
                Problem(field, path, "is no folder of the job's code; correct it, or omit it to start at its top")
            )


def _check_image(spec: JobSpec, queue: Queue) -> None:
    """Refuse an image where nothing runs it: the job would run something else than it says."""
    if clusters.backend(queue.cluster).MAKES_PODS:
        return
    named = [
        ("image", spec.image),
        *((f"roles.{name}.image", one.get("image", "")) for name, one in spec.roles.items()),
    ]
    for field, image in named:
        if image:
            words = (
                f"cannot be used on cluster {queue.cluster}, which starts processes of one machine; remove it, or "
                "choose a queue on Kubernetes"
            )
            raise InvalidSpec(Problem(field, image, words))


def _check_headless(spec: JobSpec, queue: Queue) -> None:
    """Refuse a name that no Service can have (RFC 1035); other letters, and its length, are those of a job's name."""
    if spec.headless_service and spec.name[:1].isdigit() and clusters.backend(queue.cluster).MAKES_PODS:
        words = (
            f"begins with a digit, and so would the Service {spec.name}-headless, which Kubernetes refuses; begin it "
            "with a letter, or set headless_service to 0"
        )
        raise InvalidSpec(Problem("name", spec.name, words))


def _check_volumes(spec: JobSpec, queue: Queue) -> None:
    if clusters.backend(queue.cluster).MOUNTS:
        return
    mounted = [one for one in spec.volumes if ":" in one]
    if mounted:
        name = mounted[0].partition(":")[0]
        raise InvalidSpec(
            Problem(
                "volumes", mounted[0],
                f"cluster {queue.cluster} runs plain processes and mounts nothing; write {name} alone and read "
                f"${volume_variable(name)}",
            )
        )  # fmt: skip


def _check_team_secrets(named: Iterable[str], queue: Queue) -> None:
    """Refuse names that are no secrets of the team, and paths for what has no files or where nothing is mounted."""
    if not named:
        return
    kinds = credentials.kinds(mounts(named), team=queue.team)
    problems = []
    for one in named:
        name, _, path = one.partition(":")
        if name not in kinds:
            words = f"{name} is not a secret of team {queue.team.name}; its administrators make one at /teams/{queue.team.name}/secrets"
            problems.append(Problem("team_secrets", one, words))
        elif path and kinds[name] != Kind.FILE:
            problems.append(Problem("team_secrets", one, f"{name} has no files to mount; write {name} alone"))
        elif path and not clusters.backend(queue.cluster).MOUNTS:
            words = f"cluster {queue.cluster} runs plain processes and mounts nothing; write {name} alone and read ${secret_variable(name)}"
            problems.append(Problem("team_secrets", one, words))
    if problems:
        raise InvalidSpec(*problems)


def queue_defaults(queue: Queue, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields for the jobs of a queue, checked like a job's own; None or an empty text leaves a field to the job.

    Raises InvalidInput with every problem.
    """
    given = {name: value for name, value in defaults.items() if value not in (None, "")}
    if len(given) > MOST_DEFAULTS:
        raise InvalidInput(Problem("defaults", len(given), f"has at most {MOST_DEFAULTS} fields"))
    found, problems = {}, []
    for name, value in given.items():
        try:
            found[name] = frameworks.default(name, value)
        except InvalidInput as error:
            problems += [Problem(f"defaults.{one.field}", one.value, one.message) for one in error.problems]
    if "image" in found and not clusters.backend(queue.cluster).MAKES_PODS:
        words = f"cannot be used on cluster {queue.cluster}, which starts processes of one machine; remove it"
        problems.append(Problem("defaults.image", found["image"], words))
    if problem := restarts.contradiction(found.get("restart_policy"), found.get("max_retries")):
        problems.append(replace(problem, field=f"defaults.{problem.field}"))
    try:
        _check_team_secrets(found.get("team_secrets", ()), queue)
    except InvalidSpec as error:
        problems += [Problem("defaults.team_secrets", one.value, one.message) for one in error.problems]
    if problems:
        raise InvalidInput(*problems)
    return found
