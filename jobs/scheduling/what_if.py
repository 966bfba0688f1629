"""What a change of a team's quota, or of a job's priority, would do to jobs.

These are the scheduler's own decisions, once as things are and once as they would be.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from django.utils import timezone

from common.text import listed
from jobs.core.lifecycle import Phase
from jobs.models import Job, ahead_of, in_order, turn
from queues import admission
from queues.admission.cohort import Tree
from queues.models import TeamQuota
from queues.resources import describe
from queues.rules import PRIORITIES
from queues.trees import Sharing, of_flavor, team_node

from . import fleet, reach, snapshot, waiting
from .snapshot import Snapshot
from .waiting import Waiting

NAMED = 5  # jobs in one sentence


@dataclass(frozen=True)
class _Outcome:
    """`fits`: waiting jobs that may start at some time; `used`: by the team's jobs."""

    admitted: frozenset[int] = frozenset()
    victims: frozenset[int] = frozenset()
    fits: frozenset[int] = frozenset()
    used: int = 0


def of_quota(after: TeamQuota, before: TeamQuota | None) -> list[str]:
    """Return in sentences what it would do if a team's quota were `after`, which is not saved; none where nothing changes."""
    then, now = _outcome(after), _outcome(before) if before is not None else _Outcome()
    owned = before.nominal if before is not None else 0
    sentences = []
    if after.nominal > 2 * owned > 0:
        sentences.append(f"{after.nominal:,} is more than twice today's {owned:,}.")
    if (beyond := then.used - after.nominal) > max(0, now.used - owned):
        sentences.append(
            f"Jobs of team {after.team.name} hold {describe({after.flavor.resource: then.used})}, {beyond} beyond that: others may "
            "take these back, by preemption, when they need them. No job is stopped by the change alone."
        )
    return sentences + _differences(now, then, team=after.team_id)


@dataclass(frozen=True)
class PriorityEffect:
    """What another priority does to a job and to others. `waits`: how it would wait; None where it does not wait, or would start."""

    sentences: list[str]
    waits: Waiting | None


def of_priority(job: Job, priority: int) -> PriorityEffect:
    """Return what it would do if an unfinished job had this priority."""
    now = timezone.now()
    is_waiting = Job.objects.waiting().filter(pk=job.pk).exists()
    seen, holders = waiting.foreseen(job.queue, now, also=[job] if is_waiting else ())
    changed = _with_priority(seen, job, priority)
    before, after = (
        admission.decide(one.queues, one.pending, nodes=one.nodes, now=now.timestamp()) for one in (seen, changed)
    )
    sentences = _differences(_decided(before), _decided(after), team=job.team_id)
    waits = None
    if is_waiting:
        place, old = _place(job, after, changed), _place(job, before, seen)
        if old is not None and old > reach.HORIZON:
            old = (
                Job.objects.waiting().filter(ahead_of(job), queue=job.queue).count() + 1
            )  # it was not read with the others
        if place and place <= reach.HORIZON and old != place:
            sentences.insert(
                0, f"It is number {place} in queue {job.queue.name} then" + (f", and {old} now." if old else ".")
            )
        waits = waiting.explained(waiting.up_to(job, changed), job.queue, holders, now).get(job.pk)
    return PriorityEffect(sentences or ["Nothing changes at once."], waits if waits and waits.reason else None)


def priority_to_be_first(job: Job) -> int:
    """Return the least priority with which a waiting job comes first in its queue; its own if it does, or does not wait."""
    if job.phase != Phase.QUEUED:
        return job.priority
    first = in_order(Job.objects.waiting().filter(queue=job.queue).exclude(pk=job.pk)).first()
    if first is None or turn(job) < turn(first):
        return job.priority
    wanted = first.priority + (turn(first)[1:] < turn(job)[1:])
    highest = job.queue.highest_priority
    return min(wanted, PRIORITIES[1] if highest is None else highest)


def _with_priority(seen: Snapshot, job: Job, priority: int) -> Snapshot:
    pending = [replace(one, priority=priority) if one.job == job.pk else one for one in seen.pending]
    queues = [
        replace(queue, holding=tuple(replace(one, priority=priority) if one.job == job.pk else one for one in queue.holding))
        for queue in seen.queues
    ]  # fmt: skip
    return replace(seen, pending=pending, queues=queues)


def _place(job: Job, decisions: Iterable[admission.Decision], seen: Snapshot) -> int | None:
    """Return the place of a job among those of its queue that wait for quota, from 1; None if it waits for something else."""
    ours = {one.job for one in seen.pending if one.queue == job.queue.name}
    in_line = [
        one.job
        for one in decisions
        if one.job in ours and not (isinstance(one, admission.Wait) and one.why.code in admission.ASIDE)
    ]
    return in_line.index(job.pk) + 1 if job.pk in in_line else None


def _differences(now: _Outcome, then: _Outcome, *, team: int) -> list[str]:
    changes = (
        (then.victims - now.victims, "At once preempted for jobs that have a right to it: {}."),
        (then.admitted - now.admitted, "There is room at once for {}."),
        (now.admitted - then.admitted, "Would start now, and would wait: {}."),
        (now.fits - then.fits, "Larger than they may get then, so never to start with it: {}."),
    )
    return [words.format(_named(jobs, team)) for jobs, words in changes if jobs]


def _decided(decisions: Iterable[admission.Decision]) -> _Outcome:
    found = list(decisions)
    return _Outcome(
        frozenset(one.job for one in found if isinstance(one, admission.Admit)),
        frozenset(victim for one in found if isinstance(one, admission.Wait) for victim in one.victims),
    )


def _outcome(quota: TeamQuota) -> _Outcome:
    node = team_node(quota.team.name)
    shared = next(
        one for one in of_flavor(quota.flavor_id, instead=quota) if any(leaf.name == node for leaf in one.nodes)
    )
    if not shared.queues:
        return _Outcome()
    jobs = reach.waiting(shared)
    seen = fleet.with_fleet(snapshot.snapshot(shared, jobs), jobs, fleet.of_queues(shared))
    decisions = admission.decide(seen.queues, seen.pending, nodes=seen.nodes, now=timezone.now().timestamp())
    tree = Tree(seen.nodes, {one.name: sum(one.used.values()) for one in seen.queues})
    return replace(_decided(decisions), fits=_fitting(shared, jobs, tree), used=tree.used[node])


def _fitting(shared: Sharing, jobs: Iterable[Job], tree: Tree) -> frozenset[int]:
    most = {queue.pk: tree.most(queue.name) for queue in shared.queues}
    return frozenset(job.pk for job in jobs if job.slots <= most[job.queue_id])


def _named(pks: Iterable[int], team: int) -> str:
    """Name jobs; of other teams without their names, which are not for everybody."""
    words = [
        f"{job.name} (job {job.pk}, {job.slots})"
        if job.team_id == team
        else f"a job of team {job.team.name} ({job.slots})"
        for job in Job.objects.filter(pk__in=pks).select_related("team").order_by("pk")
    ]
    return listed(words, NAMED)
