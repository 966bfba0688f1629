"""The reconciler's rows in Postgres. Each method is one short transaction that begins by locking the job's row."""

import logging
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from signal import SIGTERM

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet

from common import faultpoints
from common.db import db_connections
from common.errors import LeaseLost, Refused
from common.signals import doorbell
from common.telemetry import measures
from common.text import listed
from jobs import clusters, frameworks
from jobs.analysis import suspects
from jobs.core import exits, lease, volumes
from jobs.core.agent_identity import AgentIdentity
from jobs.core.failure_kinds import Kind
from jobs.core.lifecycle import ON_CLUSTER, TERMINAL, JobView, Phase, Step, StopReason, after, applied
from jobs.core.plan import Plan, SecretFiles
from jobs.core.replacement import GONE, Key, unconfirmed
from jobs.core.verdict import ENDED, ReplicaState, Seen
from jobs.ingest import notes
from jobs.ingest.agent_tokens import attempt_key, issue
from jobs.models import Attempt, AttemptFailure, Delivery, Job, JobEvent, Rank, RankState, Replica
from jobs.models.attempt import newest_namespace
from jobs.submission import pods, storage, trust
from jobs.webhooks import courier, outbox
from jobs.webhooks.events import WebhookEvent
from queues import excluded, namespaces
from queues.models import Queue
from volumes.services import note_job_storage

from . import attempt_rows, elastic_rows, job_secrets, lease_renewal, replica_status
from .reconciler import Held

log = logging.getLogger(__name__)

HAS_REPORTS = "has_reports"  # of agents, which no visit has judged yet
NAMESPACE = "attempt_namespace"  # of the newest attempt; None if it has no row
AVOIDS = "It prefers other nodes than those that failed it before: "
NEVER = "It stays away from nodes that administrators excluded: "
MOST_NODES = 10  # that such a line names
TROUBLE = "The cluster does not carry out a request, which is repeated: "


class DjangoStore:
    has_stepped = False  # whether a job's phase was changed through this object

    def take(self, job: int, *, owner: str, now: datetime) -> Held | None:
        with faultpoints.atomic("store.take"):
            row = (
                Job.objects.select_for_update(skip_locked=True, of=("self",), no_key=True)
                .select_related("queue")
                .annotate(**{HAS_REPORTS: Exists(unjudged(OuterRef("pk"))), NAMESPACE: newest_namespace()})
                .filter(pk=job)
                .first()
            )
            taken = lease.take(_lease(row), owner, now) if row is not None else None
            if row is None or taken is None:
                # The current holder may have observed already: mark the job as due again.
                Job.objects.filter(pk=job).update(next_reconcile_at=now)
                return None
            row.lease_token, row.lease_owner, row.lease_expires_at = taken.token, taken.owner, taken.expires_at
            # if this process dies, the sweep finds the job when the lease expires
            row.next_reconcile_at = taken.expires_at
            row.save(update_fields=["lease_token", "lease_owner", "lease_expires_at", "next_reconcile_at"])
            held = replace(_held(row, getattr(row, NAMESPACE) or ""), has_reports=getattr(row, HAS_REPORTS))
        lease_renewal.hold(held.job, held.token)
        return held

    def record(self, held: Held, *, seen: Seen, step: Step, now: datetime) -> Held:
        with faultpoints.atomic("store.record"):
            job = _mine(held)
            changed = _record_replicas(job, seen, now)
            is_same = job.phase == held.view.phase
            is_step = step.to is not None and is_same
            if is_step:
                _take_step(job, step, now)
                job.save()
            if step.replace and is_same:
                _replace_replicas(job, step.replace, seen, now=now)
            if is_step or changed or step.replace:
                doorbell.hint(job=job.pk, team=job.team_id, what="state")
            if is_step and not job.is_on_quota:
                doorbell.poke("jobs.schedule")
            if is_step and (job.is_finished or job.phase == Phase.RUNNING):
                transaction.on_commit(lambda: _measure(job, now), robust=True)
            is_new = job.attempt != held.view.attempt
            found = _held(job, attempt_rows.namespace(job) if is_new else held.namespace)
        self.has_stepped |= is_step
        return found

    def record_applied(self, held: Held, *, now: datetime) -> Held:
        view = applied(held.view, now)
        with faultpoints.atomic("store.applied"):
            _mine(held)
            Job.objects.filter(pk=held.job).update(applied_at=view.applied_at)
            Attempt.objects.filter(job=held.job, number=view.attempt).update(applied_at=view.applied_at)
            for role, index in unconfirmed(held.view.places):
                _replica(held.job, view.attempt, role, index=index).update(applied_at=now)
        return replace(held, view=view)

    def release(self, held: Held, *, due: datetime | None) -> None:
        lease_renewal.drop(held.job, held.token)  # also if the database is down: then the lease expires
        if connection.errors_occurred and not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()  # a broken connection must not keep us from releasing the lease
        with faultpoints.atomic("store.release"):
            job = _mine(held)
            # The job was poked during this visit: what caused that may be newer than what we observed.
            knocked = job.lease_expires_at is not None and job.next_reconcile_at != job.lease_expires_at
            job.lease_owner, job.lease_expires_at = "", None
            job.next_reconcile_at = job.next_reconcile_at if knocked and not job.is_finished else due
            job.save(update_fields=["lease_owner", "lease_expires_at", "next_reconcile_at"])
            # Of a finished job nothing but new reports is worth another visit.
            if knocked and (not job.is_finished or unjudged(job.pk).exists()):
                doorbell.poke("jobs.reconcile", job.pk)

    def plan(self, held: Held) -> Plan:
        """Return the launch plan. Raises Refused for an attempt that must not begin."""
        job = Job.objects.select_related("queue", "team", "user", "template").get(pk=held.job)
        is_new = held.view.applied_at is None
        if is_new and (problem := trust.problem(job.job_spec, job.queue)):
            raise Refused(f"another team now has a queue on its machine: {problem}")
        if is_new and (problems := pods.refusals(job.queue, job.job_spec, pods.document_of(job))):
            raise Refused(str(problems[0]))
        plan = replace(plan_of(job, held.view.attempt), namespace=held.namespace)
        if is_new:
            _note_nodes(job, plan)
            return plan
        # replicas that existed before are not created again
        return replace(plan, wanted=frozenset(unconfirmed(held.view.places)))

    def report_trouble(self, held: Held, trouble: str) -> None:
        """Record trouble once per attempt and message prefix.

        Numbers in the message ("25 of 60 done") change with every visit.
        """
        begins = re.match(r"\D{0,40}", trouble)
        about = f"{TROUBLE}{begins[0] if begins else ''}"
        notes.note_once(
            job=held.job, attempt=held.view.attempt, about=about, message=trouble[len(about) - len(TROUBLE) :]
        )

    def note(self, held: Held, words: str) -> None:
        notes.note_once(job=held.job, attempt=held.view.attempt, about=words, message="")


def plan_of(job: Job, attempt: int) -> Plan:
    """Return one launch of a job, with a token for each of its agents."""
    spec = job.job_spec
    framework = frameworks.get(spec.framework)
    roles = pods.roles_of(job)
    incarnations = {key: place.incarnation for key, place in elastic_rows.of(job).items()}
    secrets = {
        f"{role.name}-{index}": issue(
            AgentIdentity(job.pk, job.run, attempt, role.name, index, incarnations.get((role.name, index), 0))
        )
        for role in roles
        for index in range(role.replicas)
    }
    given = job_secrets.of_team(job, attempt)
    paths = volumes.mounts(spec.team_secrets)
    env = {
        **given.env,  # below what the job says itself
        **spec.env,
        **job_secrets.unseal(job.sealed_secrets),
        **({framework.KEY_ENV: attempt_key(job.run, attempt)} if framework.KEY_ENV else {}),
        **({"MUSTER_IGNORE_PRINTED": "1"} if spec.ignore_printed else {}),
        "MUSTER_JOB_NAME": job.name,
        "MUSTER_JOB_URL": job.public_url if settings.PUBLIC_URL else "",
    }
    return Plan(
        job.run, attempt, roles, spec.framework, env=env, secrets=secrets, grace_seconds=spec.grace_seconds,
        start_timeout_seconds=spec.start_timeout_seconds,
        team=job.team.name, job=job.name, is_headless=bool(spec.headless_service), user=job.user.username, resource=job.queue.resource, node_slots=pods.node_slots(job),
        has_code=job.workspace_id is not None, incarnations=incarnations, docker_config=given.docker_config,
        **storage.mounts_of(job),
        avoided_nodes=suspects.blamed_by(job.pk) if attempt > 1 else (),
        former=attempt_rows.former_namespaces(job, attempt) if attempt > 1 else (),
        excluded_nodes=excluded.names(job.queue.cluster) if clusters.backend(job.queue.cluster).MAKES_PODS else (),
        token_accounts=pods.token_accounts(job) if any(role.shape.service_account for role in roles) else frozenset(),
        secret_files={name: SecretFiles(files, paths[name]) for name, files in given.files.items()},
        is_isolated=bool(namespaces.of(job.team_id, job.queue.cluster, at=job.created_at)),
        egress=tuple(pods.document_of(job).get("egress", ())),
    )  # fmt: skip


def _note_nodes(job: Job, plan: Plan) -> None:
    """Say which nodes the attempt keeps off, as the scheduler's own words about missing places do not."""
    for words, nodes in ((AVOIDS, plan.avoided_nodes), (NEVER, plan.excluded_nodes)):
        if nodes:
            notes.note_once(job=job.pk, attempt=plan.attempt, about=words, message=listed(nodes, MOST_NODES))


def _held(job: Job, namespace: str) -> Held:
    spec = job.job_spec
    expected = [(role.name, index) for role in job.role_views for index in range(role.replicas)]
    return Held(
        job.pk, job.lease_token, _view(job), job.queue.cluster, job.run, expected, spec.grace_seconds,
        namespace=namespace,
    )  # fmt: skip


def _view(job: Job) -> JobView:
    spec = job.job_spec
    return JobView(
        phase=Phase(job.phase),
        phase_since=job.phase_since,
        attempt=job.attempt,
        attempt_floor=job.attempt_floor or 0,
        failures=job.failures,
        free_starts=job.free_starts,
        max_retries=spec.max_retries,
        retry_on=frozenset(spec.retry_on),
        never_retry_on=frozenset(spec.never_retry_on),
        stop_reason=StopReason(job.stop_reason) if job.stop_reason else None,
        is_cancel_requested=job.cancel_requested_at is not None,
        is_now_requested=job.cancel_now_at is not None,
        is_suspended=job.suspended,
        is_preempt_requested=job.preempt_requested_at is not None,
        applied_at=job.applied_at,
        running_since=job.running_at,
        start_timeout_seconds=spec.start_timeout_seconds,
        no_place_before=_no_place_before(job),
        deadline_seconds=spec.deadline_seconds,
        roles=job.role_views,
        places=elastic_rows.of(job),
    )


def _no_place_before(job: Job) -> str:
    """Return why the attempt before found no place until its start timed out; empty if it ended otherwise."""
    if job.phase != Phase.STARTING or job.attempt < 2:
        return ""
    last = Attempt.objects.filter(job=job, number__lt=job.attempt).order_by("-number").only("reason", "number").first()
    if last is None or last.reason != StopReason.START_TIMEOUT:
        return ""
    verdicts = AttemptFailure.objects.filter(job=job, attempt=last.number, kind=Kind.NO_PLACE)
    return verdicts.values_list("headline", flat=True).first() or ""


def _lease(job: Job) -> lease.Lease:
    return lease.Lease(job.lease_token, job.lease_owner, job.lease_expires_at)


def _mine(held: Held) -> Job:
    """Return the job's row, locked. Raises LeaseLost if the token is no longer current."""
    job = Job.objects.select_for_update(of=("self",), no_key=True).select_related("queue").get(pk=held.job)
    if not lease.is_mine(_lease(job), held.token):
        raise LeaseLost(f"job {held.job}")
    return job


def _take_step(job: Job, step: Step, now: datetime) -> None:
    """Write the result of `lifecycle.after`, the rows that change with it, and its lines of history."""
    before = job.phase
    if step.note:
        JobEvent.objects.create(job=job, at=now, kind="note", phase=before, attempt=job.attempt, message=step.note)
    for role, index in step.lost:
        _lose(_replica(job.pk, job.attempt, role, index=index), now)
    view = after(_view(job), step, now)
    job.phase, job.phase_since, job.stop_reason = view.phase, view.phase_since, view.stop_reason or ""
    job.attempt, job.failures, job.free_starts = view.attempt, view.failures, view.free_starts
    job.applied_at, job.running_at = view.applied_at, view.running_since
    job.message = step.message or job.message
    if job.phase == Phase.STARTING != before:
        job.launched_at = now
    launch = attempt_rows.write(job, before=before, now=now)
    if job.phase != before:
        _on_phase_entered(job, now, launch)
    JobEvent.objects.create(
        job=job, at=now, kind="step", phase=job.phase, attempt=job.attempt, message=job.message, launch_id=launch
    )
    if event := outbox.event_of(job, before=before, reason=step.reason):
        _queue_deliveries(job, event, now)


def _queue_deliveries(job: Job, event: WebhookEvent, now: datetime) -> None:
    """Write the deliveries that notify webhooks of this step. Whatever goes wrong with that, the job gets to its next phase."""
    try:
        with faultpoints.atomic("store.record"):  # a savepoint, which a failing statement leaves the step out of
            rows = outbox.deliveries(job, event, now=now, secrets=lambda: job_secrets.texts(job))
            Delivery.objects.bulk_create(rows, ignore_conflicts=True)
    except db_connections.AWAY:
        raise  # the step needs the database as well
    except Exception:
        log.exception("job %s: webhooks are not told that it %s", job.pk, event)
    else:
        if rows:
            transaction.on_commit(courier.wake)


def _lose(rows: QuerySet[Replica], now: datetime) -> None:
    """Record that a replica is gone, unless it had ended by itself before.

    Whoever deletes a pod ends it by SIGTERM first, and the end may be seen before the absence. Its last states may still
    be on their way through the watcher, and are older.
    """
    row = rows.get()
    if row.state in ENDED and exits.signal_of(row.exit_code, row.signal) != SIGTERM:
        return
    rows.update(
        state=ReplicaState.LOST, reason=GONE, exit_code=None, signal=None, ended_at=row.ended_at or now,
        seen_version=replica_status.FINAL_VERSION, seen_at=now,
    )  # fmt: skip


def _on_phase_entered(job: Job, now: datetime, launch: int | None) -> None:
    """Apply the changes that come with entering a phase. `launch`: the row of the attempt."""
    if job.phase == Phase.STARTING:
        assert launch is not None
        note_job_storage(storage.wanted_of(job))
        _insert_attempt(job, launch)
    elif job.phase in (Phase.QUEUED, Phase.SUSPENDED):
        job.preempt_requested_at = job.admitted_at = None  # these requests are fulfilled now
    elif job.phase in TERMINAL:
        job.finished_at, job.next_reconcile_at = now, None
    if job.phase not in ON_CLUSTER:
        Replica.objects.filter(job=job, attempt=job.attempt, closed_at=None).update(closed_at=now)
        _close_ranks(job, now)


def _insert_attempt(job: Job, launch: int) -> None:
    """Insert the rows of a new attempt before anything is created, so that every replica that appears has a row."""
    job.roles = [role.to_json() for role in job.role_views]  # a release before may have submitted it without
    for role in job.role_views:
        attempt_rows.insert(job=job.pk, run=job.run, attempt=job.attempt, launch=launch, role=role)


def _close_ranks(job: Job, now: datetime) -> None:
    """End ranks that never reported an end: their replica is known to be gone."""
    _end_ranks(Rank.objects.filter(job=job, attempt=job.attempt), now)


def _end_ranks(ranks: QuerySet[Rank], now: datetime) -> None:
    ranks.filter(state=RankState.RUNNING).update(state=RankState.FAILED, is_stopped=True, ended_at=now)


def _replace_replicas(job: Job, keys: Iterable[Key], seen: Seen, *, now: datetime) -> None:
    """Give the places of an elastic job's lost replicas to new replicas within the attempt."""
    for role, index in keys:
        rows = _replica(job.pk, job.attempt, role, index=index)
        row = rows.select_for_update(no_key=True).get()
        words = elastic_rows.explain(row, seen)
        rows.update(**elastic_rows.anew(row, now))
        Rank.objects.filter(replica=row).update(**elastic_rows.RANKS_ANEW)
        JobEvent.objects.create(
            job=job, at=now, kind="replaced", phase=job.phase, attempt=job.attempt, message=words
        )  # fmt: skip


def unjudged(job: int | OuterRef) -> QuerySet[Replica]:
    """Return the replicas whose agents reported what no visit has judged yet."""
    return Replica.objects.filter(job=job, unjudged_at__isnull=False)


def _replica(job: int, attempt: int, role: str, *, index: int) -> QuerySet[Replica]:
    return Replica.objects.filter(job=job, attempt=attempt, role=role, index=index)


def _measure(job: Job, now: datetime) -> None:
    team, queue = Queue.objects.values_list("team__name", "name").get(pk=job.queue_id)
    if job.is_finished:
        measures.ended.labels(team, queue, job.phase).inc()
    elif (began := _start_began_at(job)) is not None:
        measures.started.labels(team, queue).observe((now - began).total_seconds())


def _start_began_at(job: Job) -> datetime | None:
    """Return when the newest attempt was free to start: at its admission, or at its retry, which keeps the quota.

    `admitted_at` is no help: for a retry it is still the admission of the first attempt.
    """
    steps = JobEvent.objects.filter(job=job, kind="step", phase=Phase.ADMITTED)
    return steps.order_by("-at").values_list("at", flat=True).first()


def _record_replicas(job: Job, seen: Seen, now: datetime) -> bool:
    """Write the observed state of this attempt's replicas where it changed."""
    if seen.as_of is None or not seen.replicas:
        return False
    return replica_status.record(job.pk, job.attempt, seen.replicas, now=now)
