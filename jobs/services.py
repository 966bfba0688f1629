"""User operations on jobs, and what a submission would do. The only writers of intent; each is one transaction and idempotent.

Intent is a column (`cancel_requested_at`, `cancel_now_at`, `suspended`); acting on it is up to the reconciler.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.db import IntegrityError
from django.utils import timezone
from django.utils.crypto import salted_hmac

from accounts import audit
from accounts.models import Team, User
from accounts.permissions import Act, require
from common import faultpoints
from common.errors import Conflict, InvalidInput, InvalidSpec, Problem
from common.signals import doorbell
from jobs.clusters.replica_file import volume_variable
from jobs.core import lifecycle, pod_fields, removal, restarts
from jobs.core.lifecycle import Phase
from jobs.core.plan import Role, slots_of
from jobs.core.spec import JobSpec, parse
from jobs.models import Job, JobEvent, RemovedJob
from jobs.webhooks import services as webhooks
from queues import admission
from queues.models import Queue
from queues.resources import describe, fits
from queues.shape import ReplicaShape
from workspaces.models import Workspace
from workspaces.services import hold

from . import clusters, command_words, frameworks, trust
from .control import job_secrets, scheduler

KEY_FIELD = "Idempotency-Key"
KEY_LENGTH = 80
MOST_DEFAULTS = 100


@dataclass(frozen=True)
class Preview:
    """The result of a dry run. `wait_reason` is empty if the job would be admitted at once."""

    queue: Queue
    spec: JobSpec
    roles: tuple[Role, ...]
    asked: dict[str, int]
    wait_reason: str
    notes: tuple[str, ...] = ()  # what a user should know before it starts


def submit(
    *,
    user: User,
    queue: Queue,
    sent: Mapping[str, Any],
    workspace: Workspace | None = None,
    idempotency_key: str | None = None,
    copy_of: Job | None = None,
) -> tuple[Job, bool]:
    """Create a job in QUEUED and return it with True; for a known key with the same request, return its job with False.

    A key belongs to one user and one team. `copy_of`: the job that is submitted again. Raises NotAllowed, InvalidInput
    with one problem per field, and Conflict for a name that is taken or a key that was used for another request.
    """
    require(user, Act.SUBMIT, queue.team)
    once = _once(idempotency_key, user=user, queue=queue, sent=sent, workspace=workspace, copy_of=copy_of)
    if once and (earlier := once.earlier()):
        return earlier, False
    if workspace is not None and workspace.team_id != queue.team_id:
        raise InvalidInput(Problem("workspace", workspace.pk, f"is not one of team {queue.team}; upload it there"))
    spec = resolve(queue=queue, sent=sent, workspace=workspace)
    sealed = job_secrets.seal(sent.get("secrets") or {})
    notes = (*command_words.notes(sent=sent, queue=queue, workspace=workspace), *_changes(spec, sent))
    message = "; ".join(["submitted", *notes])
    try:
        return _insert(user, queue, spec, workspace=workspace, once=once, sealed_secrets=sealed, message=message), True
    except IntegrityError as error:
        if once and (earlier := once.earlier()):  # the same request, a moment earlier
            return earlier, False
        words = (
            f"name {spec.name!r} is that of an open job of team {queue.team}; choose another one, or end that job first"
        )
        raise Conflict(words, "name", spec.name) from error


def resolve(*, queue: Queue, sent: Mapping[str, Any], workspace: Workspace | None = None) -> JobSpec:
    """Return the frozen description of a job in this queue. Raises InvalidSpec with all problems."""
    return _resolved(queue=queue, sent=sent, workspace=workspace)[0]


def _resolved(
    *, queue: Queue, sent: Mapping[str, Any], workspace: Workspace | None
) -> tuple[JobSpec, tuple[Role, ...], clusters.Placement]:
    """Return the description with what it comes to: its roles, and what its cluster's machines say of them."""
    spec = parse(
        sent,
        gpus_per_node=queue.gpus_per_node,
        defaults=queue.defaults,
        is_file=command_words.is_file_of(workspace),
        options=frameworks.OPTIONS,
    )
    given = frozenset({*queue.defaults, *(name for name, value in sent.items() if value is not None)})
    if "gpus" in given:
        given |= {"nodes", "nproc_per_node"}
    spec = frameworks.check(spec, given)
    _check_volumes(spec, queue)
    _check_image(spec, queue)
    _check_working_dir(spec, workspace)
    webhooks.check_names(spec.notify, team=queue.team)
    if problem := trust.problem(spec, queue):
        raise InvalidSpec(problem)
    roles = frameworks.roles(spec)
    _check_operators(roles, spec, queue)
    asked = {queue.resource: slots_of(roles)}
    if not fits(asked, queue.quota):
        shape = " and ".join(f"{role.replicas} x {role.slots}" for role in roles if role.slots)
        word = "processes" if all(role.slots == role.processes for role in roles) else "slots"
        raise InvalidSpec(
            Problem(
                "nodes",
                spec.nodes,
                f"{shape} {word} need {describe(asked)}, but queue {queue.name} has {describe(queue.quota)} in all; "
                "lower nodes or nproc_per_node",
            )
        )
    placement = _placement(roles, spec, queue)
    if placement.problem:
        raise InvalidSpec(placement.problem)
    return spec, roles, placement


def preview(*, user: User, queue: Queue, sent: Mapping[str, Any], workspace: Workspace | None = None) -> Preview:
    """Return what `services.submit` would do, without creating anything. Raises the same errors."""
    require(user, Act.SUBMIT, queue.team)
    spec, roles, placement = _resolved(queue=queue, sent=sent, workspace=workspace)
    asked = {queue.resource: slots_of(roles)}
    notes = (
        *command_words.notes(queue=queue, sent=sent, workspace=workspace),
        *_changes(spec, sent),
        *_notes(queue, spec),
        *placement.warnings,
    )
    wait_reason = _wait_reason(queue, spec, roles)
    return Preview(queue, spec, with_cluster(roles, queue), asked, wait_reason, notes)


def with_cluster(roles: Iterable[Role], queue: Queue) -> tuple[Role, ...]:
    """Return the roles with all that is said of their pods, by the cluster's own settings too; nothing without pods."""
    if not clusters.backend(queue.cluster).MAKES_PODS:
        return tuple(replace(role, shape=ReplicaShape(working_dir=role.shape.working_dir)) for role in roles)
    below = clusters.get(queue.cluster).shape
    return tuple(role.on(below) for role in roles)


def _changes(spec: JobSpec, sent: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which texts of a framework's own fields it had to change, such as the name of a mesh, and what became a number."""
    found = [
        f"{name} {sent[name]} became {value}: {frameworks.OPTIONS[spec.framework][name].remedy}"
        for name, value in spec.options.items()
        if isinstance(value, str) and isinstance(sent.get(name), str) and sent[name] != value
    ]
    if policy := sent.get("restart_policy"):
        found.append(f"restart_policy {policy} became max_retries {spec.max_retries}")
    return tuple(found)


def _notes(queue: Queue, spec: JobSpec) -> tuple[str, ...]:
    """Say when it will be removed; warn about open ports, and about what has no effect on processes of one machine."""
    backend, notes = clusters.backend(queue.cluster), []
    if spec.ttl_seconds is not None:
        notes.append(removal.note(spec.ttl_seconds, drain_seconds=settings.MUSTER_AGENT_DRAIN_SECONDS))
    # Pods have addresses of their own, but processes of one machine share all of its.
    if not backend.SEPARATES and (listens := frameworks.get(spec.framework).listens(spec)):
        notes.append(f"{listens} (docs/security.md)")
    given = {*spec.pod, *(name for fields in spec.roles.values() for name in fields)}
    own = [name for name in spec.options if name.endswith(("_cpu", "_memory"))]  # of a framework's roles
    if not backend.MAKES_PODS and (names := [*pod_fields.without_effect(given), *own]):
        words = f"cluster {queue.cluster} starts processes of one machine, which have no pods: {', '.join(names)} "
        notes.append(words + ("has" if len(names) == 1 else "have") + " no effect there")
    return tuple(notes)


def _wait_reason(queue: Queue, spec: JobSpec, roles: Sequence[Role]) -> str:
    """Return admission's own reason, with the new job behind the jobs already waiting."""
    views = [role.view() for role in roles]
    state, waiting = scheduler.snapshot(queue, roles=views)
    names = scheduler.exclusive_names(views, queue)
    asked = {queue.resource: slots_of(roles)}
    newest = admission.Pending(0, queue.name, asked, spec.priority, float("inf"), names)
    for decision in admission.decide([state], [*waiting, newest]):
        if decision.job == 0 and isinstance(decision, admission.Wait):
            return decision.reason
    return ""


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
    with faultpoints.around("cluster.placement"):
        cluster = clusters.get(queue.cluster)
        found = cluster.placement(roles, resource=queue.resource, node_slots=queue.gpus_per_node)
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
    if problems:
        raise InvalidInput(*problems)
    return found


def cancel(*, job: Job, by: User, is_now: bool = False) -> Job:
    """Ask the job to end; with `is_now` without any grace period, even if it is stopping already.

    Repeated, or for a finished job, it changes nothing.
    """
    names = ("cancel_requested_at", "cancel_now_at") if is_now else ("cancel_requested_at",)
    now = timezone.now()
    return _intend(
        job, by, "cancel", wanted=lambda row: {name: now for name in names if getattr(row, name) is None},
        words="cancel requested, at once" if is_now else "cancel requested",
    )  # fmt: skip


def suspend(*, job: Job, by: User) -> Job:
    """Ask for a pause: quota and processes are released, workspace and checkpoints stay."""
    _refuse_finished(job, "suspended")
    return _intend(job, by, "suspend", wanted=lambda row: {} if row.suspended else {"suspended": True})


def resume(*, job: Job, by: User) -> Job:
    _refuse_finished(job, "resumed")
    if job.suspended and (problem := trust.problem(job.job_spec, job.queue)):
        raise Conflict(
            f"job {job.name} cannot be resumed as it is, because another team now has a queue on its machine: {problem}",
            problem.field,
            problem.value,
        )
    return _intend(job, by, "resume", wanted=lambda row: {"suspended": False} if row.suspended else {})


def resubmit(*, job: Job, by: User, idempotency_key: str | None = None) -> tuple[Job, bool]:
    """Submit the same description, secrets and code as a new job; keys as for `submit`.

    It keeps a name that its user chose, unless an open job has it.
    """
    is_taken = Job.objects.filter(team=job.team, name=job.name).exclude(phase__in=lifecycle.TERMINAL).exists()
    name = "" if is_taken else job.job_spec.name
    sent = {**job.job_spec.unchanged_input(), "name": name, "secrets": job_secrets.unseal(job.sealed_secrets)}
    return submit(
        user=by, queue=job.queue, sent=sent, workspace=job.workspace, idempotency_key=idempotency_key, copy_of=job
    )


@dataclass(frozen=True)
class _Once:
    """An idempotency key, the user and team it belongs to, and the request it was sent with."""

    key: str
    user: User
    team: Team
    digest: str

    def earlier(self) -> Job | None:
        """Return the job that this same request made before. Raises Conflict if another one used the key, or it is removed."""
        wanted = {"user": self.user, "team": self.team, "idempotency_key": self.key}
        jobs = Job.objects.select_related("queue").filter(**wanted)
        found = next(iter(jobs.order_by()), None)  # a constraint limits it to one: no submission needs to sort
        if found and found.request_digest not in (None, self.digest):
            raise Conflict(
                f"Idempotency-Key {self.key!r} already made job {found.name} (id {found.pk}) of team {self.team} from a "
                "different request; use a new key for this one, or send the first request unchanged",
                KEY_FIELD,
                self.key,
            )
        removed = None if found else RemovedJob.objects.filter(**wanted).order_by().first()
        if removed:  # nothing runs twice
            raise Conflict(f"Idempotency-Key {self.key!r} already made {removed.told}", KEY_FIELD, self.key)
        return found


def _once(key: str | None, *, user: User, queue: Queue, copy_of: Job | None, **request: Any) -> _Once | None:
    """Return None without a key. Raises InvalidInput for a key that no row can hold."""
    if not key:
        return None
    if len(key) > KEY_LENGTH:
        raise InvalidInput(Problem(KEY_FIELD, key, f"must have at most {KEY_LENGTH} characters"))
    return _Once(key, user, queue.team, request_digest(queue=queue, copy_of=copy_of, **request))


def request_digest(
    *, queue: Queue, sent: Mapping[str, Any], workspace: Workspace | None, copy_of: Job | None = None
) -> str:
    """Return the sha256 (hex) of the parsed request: absent and null fields are equal, and order is irrelevant.

    Secrets enter as HMACs, so that a dump of the database offers no way to try values against the digest.
    """
    asked = {name: value for name, value in sent.items() if value is not None}
    secrets = asked.get("secrets") or {}
    if isinstance(secrets, Mapping):
        asked["secrets"] = {name: _hidden(str(value)) for name, value in secrets.items()}
    else:  # refused once it is parsed
        asked["secrets"] = _hidden(repr(secrets))
    whole = [queue.pk, workspace and workspace.pk, copy_of and copy_of.pk, asked]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()


def _hidden(text: str) -> str:
    return salted_hmac("muster.request", text, algorithm="sha256").hexdigest()


def _insert(
    user: User,
    queue: Queue,
    spec: JobSpec,
    *,
    workspace: Workspace | None,
    once: _Once | None,
    sealed_secrets: str,
    message: str,
) -> Job:
    roles = frameworks.roles(spec)
    with faultpoints.atomic("services.submit"):
        if workspace is not None:
            hold(workspace)
        job = Job.objects.create(
            team=queue.team,
            queue=queue,
            user=user,
            workspace=workspace,
            name=spec.name or default_name(spec),
            spec=spec.to_json(),
            sealed_secrets=sealed_secrets,
            priority=spec.priority,
            ttl_seconds=spec.ttl_seconds,
            roles=[role.view().to_json() for role in roles],
            slots=slots_of(roles),
            idempotency_key=once.key if once else None,
            request_digest=once.digest if once else None,
            next_reconcile_at=None,  # until it is admitted there is nothing to reconcile
        )
        JobEvent.objects.create(job=job, kind="submitted", phase=Phase.QUEUED, message=message, user=user)
        JobEvent.objects.create(job=job, kind="step", phase=Phase.QUEUED, message="waits for quota")
        fields = {"queue": queue.name, "nodes": spec.nodes, "nproc_per_node": spec.nproc_per_node}
        audit.record(audit.AuditAction.JOB_SUBMITTED, by=user, on=job, team=job.team, after=fields)
        doorbell.poke("jobs.schedule")
        doorbell.hint(job=job.pk, team=job.team_id, what="state")
    return job


def default_name(spec: JobSpec) -> str:
    """Return the script's name and a suffix, so that only a name chosen by a user can clash."""
    stem = command_words.launched(spec.command).rsplit("/", 1)[-1].rsplit(".", 1)[0].lower()
    clean = (
        "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem).strip("-")[:30].strip("-")
    )
    return f"{clean or 'job'}-{secrets.token_hex(3)}"


def _refuse_finished(job: Job, done: str) -> None:
    if not job.is_finished:  # which is final: its row may be gone by now
        job.refresh_from_db(fields=["phase"])
    if job.is_finished:
        raise Conflict(
            f"job {job.name} is {job.phase} and cannot be {done}; resubmit it to run it again", "phase", job.phase
        )


def _intend(job: Job, by: User, kind: str, *, wanted: Callable[[Job], dict[str, Any]], words: str = "") -> Job:
    """Write intent. `wanted` returns the columns of the locked row to write; none if nothing changes."""
    require(by, Act.CONTROL, job.team)
    if job.is_finished:  # which is final: its row may be gone by now
        return job
    with faultpoints.atomic("services.intend"):
        row = (
            Job.objects.select_for_update(of=("self",), no_key=True)
            .select_related("queue", "team", "user")
            .get(pk=job.pk)
        )
        values = {} if row.is_finished else wanted(row)
        if not values:
            return row
        before = {name: getattr(row, name) for name in values}
        for name, value in values.items():
            setattr(row, name, value)
        row.next_reconcile_at = timezone.now()
        row.save(update_fields=[*values, "next_reconcile_at"])
        JobEvent.objects.create(
            job=row, kind=kind, phase=row.phase, attempt=row.attempt, message=words or f"{kind} requested", user=by
        )
        audit.record(audit.AuditAction(f"job.{kind}"), by=by, on=row, team=row.team, before=before, after=values)
        doorbell.poke("jobs.reconcile", row.pk)
        doorbell.hint(job=row.pk, team=row.team_id, what="state")
    return row
