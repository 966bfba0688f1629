"""What people may ask of a job. The only writers of intent; each is one transaction and may be asked twice.

Intent is a column (`cancel_requested_at`, `suspended`); what follows from it is the reconciler's.
"""

import secrets
from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError
from django.utils import timezone

from accounts import audit
from accounts.models import User
from accounts.permissions import Act, require
from controlplane import crash, doorbell
from controlplane.errors import Conflict, InvalidInput, InvalidSpec, Problem
from queues.models import Queue
from queues.resources import describe, fits
from workspaces.models import Workspace
from workspaces.services import hold

from . import clusters, frameworks, vault
from .clusters.processes import volume_variable
from .lifecycle import Phase
from .models import Job, JobEvent
from .spec import JobSpec, parse

KEY_LENGTH = 80


def submit(
    *,
    user: User,
    queue: Queue,
    sent: Mapping[str, Any],
    workspace: Workspace | None = None,
    idempotency_key: str | None = None,
) -> tuple[Job, bool]:
    """A new job in QUEUED, and True; the same idempotency key gives the job it made before, and False.

    Raises NotAllowed, InvalidInput with one problem per field, and Conflict for a name that is taken.
    """
    require(user, Act.SUBMIT, queue.team)
    if idempotency_key is not None and len(idempotency_key) > KEY_LENGTH:
        raise InvalidInput(Problem("Idempotency-Key", idempotency_key, f"must have at most {KEY_LENGTH} characters"))
    if earlier := _earlier(user, idempotency_key):
        return earlier, False
    if workspace is not None and workspace.team_id != queue.team_id:
        raise InvalidInput(Problem("workspace", workspace.pk, f"is not one of team {queue.team}; upload it there"))
    spec = resolve(queue=queue, sent=sent)
    sealed = vault.seal(sent.get("secrets") or {})
    try:
        return _insert(user, queue, spec, workspace, idempotency_key, sealed), True
    except IntegrityError as error:
        if earlier := _earlier(user, idempotency_key):  # the same request, a moment earlier
            return earlier, False
        raise Conflict(
            f"name {spec.name!r} is taken in team {queue.team}; choose another one or leave it out", "name", spec.name
        ) from error


def resolve(*, queue: Queue, sent: Mapping[str, Any]) -> JobSpec:
    """The frozen description of a job in this queue; raises InvalidSpec with everything that is wrong."""
    spec = parse(sent, gpus_per_node=queue.gpus_per_node, defaults=queue.defaults)
    given = frozenset({*queue.defaults, *(name for name, value in sent.items() if value is not None)})
    if "gpus" in given:
        given |= {"nodes", "nproc_per_node"}
    spec = frameworks.check(spec, given)
    _check_volumes(spec, queue)
    asked = {queue.resource: spec.nodes * spec.nproc_per_node}
    if not fits(asked, queue.quota):
        raise InvalidSpec(
            Problem(
                "nodes",
                spec.nodes,
                f"{spec.nodes} x {spec.nproc_per_node} processes need {describe(asked)}, but queue {queue.name} has "
                f"{describe(queue.quota)} in all; lower nodes or nproc_per_node",
            )
        )
    _check_nodes(spec, queue)
    return spec


def _check_nodes(spec: JobSpec, queue: Queue) -> None:
    """Refuses what no machine of the cluster could ever take; where they are not known, nothing."""
    if not clusters.backend(queue.cluster).HAS_NODES:
        return
    for role in frameworks.get(spec.framework).roles(spec):
        with crash.around("cluster.misfit"):
            cluster = clusters.get(queue.cluster)
            problem = cluster.misfit(processes=role.processes, nodes=role.replicas, resource=queue.resource)
        if problem:
            raise InvalidSpec(problem)


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


def cancel(*, job: Job, by: User) -> Job:
    """Ask for the end. Asked again, or of a finished job, it changes nothing."""
    return _intend(
        job, by, "cancel", {"cancel_requested_at": timezone.now()}, unless=lambda row: row.cancel_requested_at
    )


def suspend(*, job: Job, by: User) -> Job:
    """Ask for a pause: quota and processes go, workspace and checkpoints stay."""
    _refuse_finished(job, "suspend")
    return _intend(job, by, "suspend", {"suspended": True}, unless=lambda row: row.suspended)


def resume(*, job: Job, by: User) -> Job:
    _refuse_finished(job, "resume")
    return _intend(job, by, "resume", {"suspended": False}, unless=lambda row: not row.suspended)


def resubmit(*, job: Job, by: User, idempotency_key: str | None = None) -> tuple[Job, bool]:
    """The same description, secrets and code as a new job, under a new name; keys as for `submit`."""
    sent = {**job.spec, "name": "", "secrets": vault.unseal(job.sealed_secrets)}
    return submit(user=by, queue=job.queue, sent=sent, workspace=job.workspace, idempotency_key=idempotency_key)


def _earlier(user: User, key: str | None) -> Job | None:
    return Job.objects.select_related("queue").filter(user=user, idempotency_key=key).first() if key else None


def _insert(
    user: User, queue: Queue, spec: JobSpec, workspace: Workspace | None, key: str | None, sealed_secrets: str
) -> Job:
    with crash.atomic("services.submit"):
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
            slots=spec.nodes * spec.nproc_per_node,
            idempotency_key=key or None,
            next_reconcile_at=None,  # until it is admitted there is nothing to reconcile
        )
        JobEvent.objects.create(job=job, kind="submitted", phase=Phase.QUEUED, message="submitted", user=user)
        JobEvent.objects.create(job=job, kind="step", phase=Phase.QUEUED, message="waits for quota")
        told = {"queue": queue.name, "nodes": spec.nodes, "nproc_per_node": spec.nproc_per_node}
        audit.record(audit.Deed.JOB_SUBMITTED, by=user, on=job, team=job.team, after=told)
        doorbell.poke("jobs.schedule")
        doorbell.hint(job=job.pk, team=job.team_id, what="state")
    return job


def default_name(spec: JobSpec) -> str:
    """The script's name and a suffix, so that only a name that a person chose can clash."""
    words = [word for word in spec.command[1:] if not word.startswith("-")] or [spec.command[0]]
    stem = words[0].rsplit("/", 1)[-1].rsplit(".", 1)[0].lower()
    clean = (
        "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem).strip("-")[:30].strip("-")
    )
    return f"{clean or 'job'}-{secrets.token_hex(3)}"


def _refuse_finished(job: Job, verb: str) -> None:
    job.refresh_from_db(fields=["phase"])
    if job.is_finished:
        raise Conflict(
            f"job {job.name} is {job.phase} and can not be {verb}ed; resubmit it to run it again", "phase", job.phase
        )


def _intend(job: Job, by: User, kind: str, values: dict[str, Any], *, unless: Any) -> Job:
    require(by, Act.CONTROL, job.team)
    with crash.atomic("services.intend"):
        row = (
            Job.objects.select_for_update(of=("self",), no_key=True)
            .select_related("queue", "team", "user")
            .get(pk=job.pk)
        )
        if row.is_finished or unless(row):
            return row
        before = {name: getattr(row, name) for name in values}
        for name, value in values.items():
            setattr(row, name, value)
        row.next_reconcile_at = timezone.now()
        row.save(update_fields=[*values, "next_reconcile_at"])
        JobEvent.objects.create(
            job=row, kind=kind, phase=row.phase, attempt=row.attempt, message=f"{kind} requested", user=by
        )
        audit.record(audit.Deed(f"job.{kind}"), by=by, on=row, team=row.team, before=before, after=values)
        doorbell.poke("jobs.reconcile", row.pk)
        doorbell.hint(job=row.pk, team=row.team_id, what="state")
    return row
