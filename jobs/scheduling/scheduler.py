"""Load a snapshot of queues that share quota, let `queues.admission` decide, record.

The only writer of QUEUED to ADMITTED, and of the request to preempt.
"""

from collections.abc import Iterable, Mapping, Sequence

from django.db import connection, transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from common import faultpoints
from common.signals import doorbell
from common.telemetry import measures
from jobs.core.lifecycle import HOLDS_QUOTA, Phase
from jobs.models import Job, JobEvent
from queues import admission, trees
from queues.models import Queue
from queues.trees import Sharing

from . import fleet, reach, snapshot
from .snapshot import Snapshot


def schedule() -> int:
    """Admit the jobs that fit in every queue, and stop those of queues that drain. Return how many were admitted."""
    for draining in Queue.objects.filter(is_open=False, drains=True):
        _drain(draining)
    queues = Queue.objects.filter(Exists(Job.objects.waiting().filter(queue=OuterRef("pk"))))
    admitted, done = 0, set[int]()
    for queue, flavor in list(queues.order_by("pk").values_list("pk", "flavor")):
        if queue not in done:
            count, together = _schedule(queue, is_shared=flavor is not None)
            admitted, done = admitted + count, done | together
    return admitted


def schedule_queue(queue_id: int) -> int:
    """Schedule one queue, and with it those that share its quota. Returns how many jobs were admitted."""
    return _schedule(queue_id, is_shared=Queue.objects.filter(pk=queue_id, flavor__isnull=False).exists())[0]


def _schedule(queue_id: int, *, is_shared: bool) -> tuple[int, set[int]]:
    """Schedule queues that share quota in one transaction; return also which.

    The rows of all of them are locked, in the order of their ids: a second scheduler waits for that, then sees our
    admissions. If meanwhile others came to share it, they are scheduled with the next round.
    """
    ids = trees.ids(Queue.objects.get(pk=queue_id)) if is_shared else {queue_id}
    with faultpoints.atomic("scheduler.queue"):
        rows = Queue.objects.select_related("team", "flavor").select_for_update(no_key=True, of=("self",))
        locked = {row.pk: row for row in rows.filter(pk__in=ids).order_by("pk")}
        shared = trees.sharing(locked[queue_id], rows=locked.values())
        if (
            not trees.ids(locked[queue_id]) <= ids
        ):  # asked after `shared` was read, so that nobody who joined before is missed
            doorbell.poke("jobs.schedule")
            return 0, {queue_id}
        used = reach.held(shared.queues)
        jobs, seen, decisions = _decide(shared, used)
        by_id = {job.pk: job for job in jobs}
        admitted = [by_id[decision.job] for decision in decisions if _record(by_id[decision.job], decision)]
        spent = {one.name: one.spent_until for one in seen.queues if one.spent_until is not None}
        stored = sum(_tell(reason, rows) for reason, rows in reach.others(shared, list(by_id), used=used, spent=spent))
        if stored >= reach.MOST_STORED:
            doorbell.poke("jobs.schedule")
        transaction.on_commit(lambda: _measure(locked, admitted), robust=True)
        return len(admitted), {one.pk for one in shared.queues}


def _decide(shared: Sharing, used: Mapping[int, int]) -> tuple[list[Job], Snapshot, list[admission.Decision]]:
    """Return the jobs in reach and what is decided about each, with more of them where those were too few.

    The nodes are looked at only where they may change what is decided: where a job has its quota, others are preempted for
    one, or the first of a queue waits and some of the quota is free.
    """
    found, nodes = reach.in_reach(shared, used), None
    while True:
        now = timezone.now().timestamp()
        seen = snapshot.snapshot(shared, found.jobs, lock=_lock, used=used)
        decisions = admission.decide(seen.queues, seen.pending, nodes=seen.nodes, now=now)
        if any(map(_depends_on_nodes, decisions)):
            nodes = nodes or fleet.of_queues(shared)
            seen = fleet.with_fleet(seen, found.jobs, nodes)
            decisions = admission.decide(seen.queues, seen.pending, nodes=seen.nodes, now=now) if nodes else decisions
        short = found.short(decisions)
        if not short:
            return found.jobs, seen, decisions
        found = reach.in_reach(shared, used, before=found, more=short)


def _depends_on_nodes(one: admission.Decision) -> bool:
    if isinstance(one, admission.Admit):
        return True
    return bool(one.victims) or (one.is_head and any(one.why.free.values()))


def _tell(reason: admission.Reason, rows: Sequence[tuple[int, int]]) -> int:
    """Store why jobs wait on which no pass decides. Returns how many they are."""
    words = admission.words(reason, is_lasting=True)
    Job.objects.waiting().filter(pk__in=[pk for pk, _ in rows]).update(wait_code=reason.code, wait_reason=words)
    for pk, team in rows[: reach.HORIZON]:
        doorbell.hint(job=pk, team=team, what="state")
    return len(rows)


def _measure(queues: Mapping[int, Queue], admitted: Iterable[Job]) -> None:
    for job in admitted:
        queue = queues[job.queue_id]
        seconds = (timezone.now() - job.phase_since).total_seconds()  # as it was read, when it still waited
        measures.waited.labels(queue.team.name, queue.name).observe(seconds)


def _lock(what: str) -> None:
    """Let one scheduler at a time give out what all queues of a cluster share, until its transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [what])


def _record(job: Job, decision: admission.Decision) -> bool:
    match decision:
        case admission.Wait(why=why, is_head=is_head, victims=victims):
            for victim in victims:
                _preempt(victim, job)
            # What only moved up keeps its row: numbers that change with every admission are read, not stored.
            reason = admission.words(why, is_lasting=not is_head)
            if (job.wait_code, job.wait_reason) != (why.code, reason):
                Job.objects.filter(pk=job.pk).update(wait_code=why.code, wait_reason=reason)
                doorbell.hint(job=job.pk, team=job.team_id, what="state")
            return False
        case admission.Admit():
            return _admit(job)


def _preempt(victim: int, job: Job) -> None:
    """Ask a job to give its quota back for another one."""
    team = Job.objects.values_list("team", flat=True).get(pk=victim)
    name = f"job {job.pk} ({job.name})" if team == job.team_id else f"a job of team {job.team.name}"
    _ask_back(victim, f"asked to give its quota back: {name} has a better right to it")


def _ask_back(victim: int, words: str) -> None:
    """Ask a job to give its quota back. It holds it until its replicas are gone, and waits again with its place kept."""
    now = timezone.now()
    asked = Job.objects.filter(pk=victim, preempt_requested_at=None, phase__in=sorted(HOLDS_QUOTA - {Phase.STOPPING}))
    if asked.update(preempt_requested_at=now, next_reconcile_at=now):
        row = Job.objects.only("phase", "attempt", "team_id").get(pk=victim)
        JobEvent.objects.create(job=row, at=now, kind="note", phase=row.phase, attempt=row.attempt, message=words)
        doorbell.hint(job=victim, team=row.team_id, what="state")
        doorbell.poke("jobs.reconcile", victim)


def _drain(queue: Queue) -> None:
    """Ask all jobs of a closed queue to give their quota back; they wait in it with their place kept."""
    asked = Job.objects.holding_quota().filter(queue=queue, preempt_requested_at=None).exclude(phase=Phase.STOPPING)
    for pk in list(asked.values_list("pk", flat=True)):
        with faultpoints.atomic("scheduler.queue"):
            locked = Queue.objects.select_for_update(no_key=True).filter(pk=queue.pk, is_open=False, drains=True)
            if not locked.exists():
                return  # opened meanwhile
            _ask_back(pk, f"asked to give its quota back: an administrator drains queue {queue.name}")


def _admit(job: Job) -> bool:
    """Admit a job.

    No row is updated if it was cancelled or suspended meanwhile: not an error, and no quota is taken.
    """
    now = timezone.now()
    admitted = (
        Job.objects.waiting()
        .filter(pk=job.pk)
        .update(
            phase=Phase.ADMITTED,
            phase_since=now,
            admitted_at=now,
            wait_code="",
            wait_reason="",
            message="quota reserved",
            next_reconcile_at=now,
        )
    )
    if admitted:
        JobEvent.objects.create(
            job=job, at=now, kind="step", phase=Phase.ADMITTED, attempt=job.attempt, message="quota reserved"
        )
        doorbell.hint(job=job.pk, team=job.team_id, what="state")
        doorbell.poke("jobs.reconcile", job.pk)
    return bool(admitted)
