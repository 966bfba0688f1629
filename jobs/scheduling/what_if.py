"""What a change of a team's quota would do to jobs: the scheduler's own decisions, once as things are and once as they would be."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils import timezone

from common.text import listed
from jobs.models import Job
from queues import admission
from queues.admission.cohort import Tree
from queues.models import TeamQuota
from queues.resources import describe
from queues.trees import Sharing, of_flavor, team_node

from . import snapshot

NAMED = 5  # jobs in one sentence


@dataclass(frozen=True)
class _Outcome:
    """`fits`: waiting jobs that may start at some time."""

    admitted: frozenset[int]
    victims: frozenset[int]
    fits: frozenset[int]
    used: int  # by the team's jobs
    total: int  # that the team has


def of_quota(after: TeamQuota, before: TeamQuota | None) -> list[str]:
    """Return in sentences what it would do if a team's quota were `after`, which is not saved; none where nothing changes."""
    one = _outcome(after)
    jobs = {
        job.pk: job for job in Job.objects.filter(pk__in=one.admitted | one.victims | one.fits).select_related("team")
    }
    unit, sentences = after.flavor.resource, list[str]()
    if before is not None and after.nominal > 2 * before.nominal > 0:
        sentences.append(f"{after.nominal:,} is more than twice today's {before.nominal:,}.")
    held = (
        _outcome(before) if before is not None else _Outcome(frozenset(), frozenset(), frozenset(), one.used, one.total)
    )
    if (beyond := one.used - after.nominal) > max(0, held.used - (before.nominal if before else 0)):
        sentences.append(
            f"Jobs of team {after.team.name} hold {describe({unit: one.used})}, {beyond} beyond that: others may take these back, "
            "by preemption, when they need them. No job is stopped by the change alone."
        )
    if new := one.victims - held.victims:
        sentences.append(f"At once preempted for jobs that have a right to it: {_named(new, jobs, after)}.")
    if new := one.admitted - held.admitted:
        sentences.append(f"There is room at once for {_named(new, jobs, after)}.")
    if lost := held.admitted - one.admitted:
        others = {job.pk: job for job in Job.objects.filter(pk__in=lost).select_related("team")}
        sentences.append(f"Would start now, and would wait: {_named(lost, others, after)}.")
    if never := held.fits - one.fits:
        others = {job.pk: job for job in Job.objects.filter(pk__in=never).select_related("team")}
        sentences.append(f"Larger than they may get then, so never to start with it: {_named(never, others, after)}.")
    return sentences


def _outcome(quota: TeamQuota) -> _Outcome:
    node = team_node(quota.team.name)
    shared = next(
        one for one in of_flavor(quota.flavor_id, instead=quota) if any(leaf.name == node for leaf in one.nodes)
    )
    if not shared.queues:
        return _Outcome(frozenset(), frozenset(), frozenset(), 0, quota.nominal)
    jobs = snapshot.waiting(shared)
    seen = snapshot.snapshot(shared, jobs)
    decisions = admission.decide(seen.queues, seen.pending, nodes=seen.nodes, now=timezone.now().timestamp())
    tree = Tree(seen.nodes, {one.name: sum(one.used.values()) for one in seen.queues})
    return _Outcome(
        frozenset(one.job for one in decisions if isinstance(one, admission.Admit)),
        frozenset(victim for one in decisions if isinstance(one, admission.Wait) for victim in one.victims),
        _fitting(shared, jobs, tree),
        tree.used[node],
        tree.total[node],
    )


def _fitting(shared: Sharing, jobs: Iterable[Job], tree: Tree) -> frozenset[int]:
    most = {queue.pk: tree.most(queue.name) for queue in shared.queues}
    return frozenset(job.pk for job in jobs if job.slots <= most[job.queue_id])


def _named(pks: Iterable[int], jobs: dict[int, Job], quota: TeamQuota) -> str:
    """Name jobs; of other teams without their names, which are not for everybody."""
    found = [jobs[pk] for pk in sorted(pks) if pk in jobs]
    words = [
        f"{job.name} (job {job.pk}, {job.slots})"
        if job.team_id == quota.team_id
        else f"a job of team {job.team.name} ({job.slots})"
        for job in found
    ]
    return listed(words, NAMED)
