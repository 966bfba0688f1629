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
    changes = (
        (then.victims - now.victims, "At once preempted for jobs that have a right to it: {}."),
        (then.admitted - now.admitted, "There is room at once for {}."),
        (now.admitted - then.admitted, "Would start now, and would wait: {}."),
        (now.fits - then.fits, "Larger than they may get then, so never to start with it: {}."),
    )
    return sentences + [words.format(_named(jobs, after)) for jobs, words in changes if jobs]


def _outcome(quota: TeamQuota) -> _Outcome:
    node = team_node(quota.team.name)
    shared = next(
        one for one in of_flavor(quota.flavor_id, instead=quota) if any(leaf.name == node for leaf in one.nodes)
    )
    if not shared.queues:
        return _Outcome()
    jobs = snapshot.waiting(shared)
    seen = snapshot.snapshot(shared, jobs)
    decisions = admission.decide(seen.queues, seen.pending, nodes=seen.nodes, now=timezone.now().timestamp())
    tree = Tree(seen.nodes, {one.name: sum(one.used.values()) for one in seen.queues})
    return _Outcome(
        frozenset(one.job for one in decisions if isinstance(one, admission.Admit)),
        frozenset(victim for one in decisions if isinstance(one, admission.Wait) for victim in one.victims),
        _fitting(shared, jobs, tree),
        tree.used[node],
    )


def _fitting(shared: Sharing, jobs: Iterable[Job], tree: Tree) -> frozenset[int]:
    most = {queue.pk: tree.most(queue.name) for queue in shared.queues}
    return frozenset(job.pk for job in jobs if job.slots <= most[job.queue_id])


def _named(pks: Iterable[int], quota: TeamQuota) -> str:
    """Name jobs; of other teams without their names, which are not for everybody."""
    words = [
        f"{job.name} (job {job.pk}, {job.slots})"
        if job.team_id == quota.team_id
        else f"a job of team {job.team.name} ({job.slots})"
        for job in Job.objects.filter(pk__in=pks).select_related("team").order_by("pk")
    ]
    return listed(words, NAMED)
