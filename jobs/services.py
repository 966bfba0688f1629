"""User operations on jobs, and what a submission would do. The only writers of intent; each is one transaction and idempotent.

Intent is a column (`cancel_requested_at`, `cancel_now_at`, `suspended`); acting on it is up to the reconciler.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError
from django.utils import timezone
from django.utils.crypto import salted_hmac

from accounts import audit
from accounts.models import Team, User
from accounts.permissions import Act, require
from common import faultpoints
from common.errors import Conflict, InvalidInput, Problem
from common.signals import doorbell
from credentials import services as credentials
from jobs.core import lifecycle
from jobs.core.lifecycle import Phase
from jobs.core.plan import Role, slots_of
from jobs.core.spec import JobSpec
from jobs.core.volumes import mounts
from jobs.models import Job, JobEvent, RemovedJob
from jobs.scheduling import waiting
from jobs.scheduling.waiting import Waiting
from jobs.webhooks import services as webhooks
from queues import templates
from queues.models import Queue
from queues.rules import priority_problems
from volumes import services as volumes
from workspaces.models import Workspace
from workspaces.services import hold

from .control import job_secrets
from .submission import command_words, resolving, storage, trust
from .submission.resolving import Resolved

KEY_FIELD = "Idempotency-Key"
KEY_LENGTH = 80


@dataclass(frozen=True)
class Preview:
    """The result of a dry run. `waiting` says whether the job would be admitted at once, and else why not and until when."""

    queue: Queue
    spec: JobSpec
    roles: tuple[Role, ...]
    asked: dict[str, int]
    waiting: Waiting
    notes: tuple[str, ...] = ()  # what a user should know before it starts

    @property
    def wait_reason(self) -> str:
        """Why it would wait; empty if it would start at once."""
        return self.waiting.sentence


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
    found = _resolved(queue=queue, sent=sent, workspace=workspace)
    spec = found.spec
    sealed = job_secrets.seal(sent.get("secrets") or {})
    notes = (
        *command_words.notes(sent=sent, queue=queue, spec=spec, workspace=workspace),
        *resolving.changes(spec, sent),
        *storage.start_notes(spec),
    )
    message = "; ".join(["submitted", *notes])
    try:
        return _insert(user, queue, found, workspace=workspace, once=once, sealed_secrets=sealed, message=message), True
    except IntegrityError as error:
        if once and (earlier := once.earlier()):  # the same request, a moment earlier
            return earlier, False
        words = (
            f"name {spec.name!r} is that of an open job of team {queue.team}; choose another one, or end that job first"
        )
        raise Conflict(words, "name", spec.name) from error


def resolve(*, queue: Queue, sent: Mapping[str, Any], workspace: Workspace | None = None) -> JobSpec:
    """Return the frozen description of a job in this queue. Raises InvalidSpec with all problems."""
    return _resolved(queue=queue, sent=sent, workspace=workspace).spec


def _resolved(*, queue: Queue, sent: Mapping[str, Any], workspace: Workspace | None) -> Resolved:
    found = resolving.resolve(queue=queue, sent=sent, workspace=workspace)
    webhooks.check_names(found.spec.notify, team=queue.team)
    return found


def preview(*, user: User, queue: Queue, sent: Mapping[str, Any], workspace: Workspace | None = None) -> Preview:
    """Return what `services.submit` would do, without creating anything. Raises the same errors."""
    require(user, Act.SUBMIT, queue.team)
    found = _resolved(queue=queue, sent=sent, workspace=workspace)
    spec, roles = found.spec, found.roles
    asked = {queue.resource: slots_of(roles)}
    notes = (
        *command_words.notes(queue=queue, sent=sent, spec=spec, workspace=workspace),
        *resolving.changes(spec, sent),
        *resolving.notes(queue, spec),
        *found.placement.warnings,
        *storage.warnings(queue, spec, roles),
    )
    waits = waiting.of_new(_row(user, queue, spec, roles))
    return Preview(queue, spec, resolving.with_cluster(roles, queue), asked, waits, notes)


def _row(user: User, queue: Queue, spec: JobSpec, roles: Sequence[Role]) -> Job:
    """Return a job as it would be stored, unsaved."""
    return Job(
        team=queue.team,
        queue=queue,
        user=user,
        name=spec.name or default_name(spec),
        spec=spec.to_json(),
        priority=spec.priority,
        ttl_seconds=spec.ttl_seconds,
        roles=[role.view().to_json() for role in roles],
        slots=slots_of(roles),
    )


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


def set_priority(*, job: Job, by: User, priority: int) -> Job:
    """Give an unfinished job another priority; it keeps its age in the queue. Raises InvalidInput above the queue's highest."""
    require(by, Act.CONTROL, job.team)
    _refuse_finished(job, "given another priority")

    def wanted(row: Job) -> dict[str, Any]:
        if problems := priority_problems(row.queue, priority):
            raise InvalidInput(*problems)
        return {"priority": priority} if priority != row.priority else {}

    return _intend(job, by, "priority", wanted=wanted, words=f"changed to {priority}", for_scheduler=True)


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
    found: Resolved,
    *,
    workspace: Workspace | None,
    once: _Once | None,
    sealed_secrets: str,
    message: str,
) -> Job:
    spec, roles = found.spec, found.roles
    with faultpoints.atomic("services.submit"):
        if workspace is not None:
            hold(workspace)
        credentials.hold(mounts(spec.team_secrets), team=queue.team)
        volumes.hold([*mounts(spec.volumes)], team=queue.team)
        job = _row(user, queue, spec, roles)
        job.workspace, job.template, job.sealed_secrets = workspace, templates.version(queue), sealed_secrets
        job.idempotency_key, job.request_digest = (once.key, once.digest) if once else (None, None)
        job.next_reconcile_at = None  # until it is admitted there is nothing to reconcile
        job.save(force_insert=True)
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
    if spec.headless_service and clean[:1].isdigit():  # a Service's name begins with a letter
        clean = f"job-{clean}"
    return f"{clean or 'job'}-{secrets.token_hex(3)}"


def _refuse_finished(job: Job, done: str) -> None:
    if not job.is_finished:  # which is final: its row may be gone by now
        job.refresh_from_db(fields=["phase"])
    if job.is_finished:
        raise Conflict(
            f"job {job.name} is {job.phase} and cannot be {done}; resubmit it to run it again", "phase", job.phase
        )


def _intend(
    job: Job,
    by: User,
    kind: str,
    *,
    wanted: Callable[[Job], dict[str, Any]],
    words: str = "",
    for_scheduler: bool = False,
) -> Job:
    """Write intent. `wanted` returns the columns of the locked row to write; none if nothing changes.

    `for_scheduler`: it changes whose turn it is, and nothing about the job's own processes.
    """
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
        if not for_scheduler:
            row.next_reconcile_at = timezone.now()
        row.save(update_fields=[*values, "next_reconcile_at"])
        JobEvent.objects.create(
            job=row, kind=kind, phase=row.phase, attempt=row.attempt, message=words or f"{kind} requested", user=by
        )
        audit.record(audit.AuditAction(f"job.{kind}"), by=by, on=row, team=row.team, before=before, after=values)
        if for_scheduler:
            doorbell.poke("jobs.schedule")
        else:
            doorbell.poke("jobs.reconcile", row.pk)
        doorbell.hint(job=row.pk, team=row.team_id, what="state")
    return row
