"""Which running jobs give their quota back for one that waits. Pure.

There are two grounds. *Reclaim*: the job stays within what its queue, team or cohort has, and others borrow that; they give
it back whatever their priority. *Priority*: its queue lets jobs take the place of those of a lower priority in it.

Chosen are the jobs of the lowest priority, of those the ones that lose the least work, of those the fewest.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from .cohort import Tree
from .fleet import Fleet
from .snapshot import Holding, Pending

EXACT = 10  # candidates up to which every choice is compared; beyond, one after the other is taken and what was not needed is spared


def borrows(job: Pending, tree: Tree) -> tuple[bool, ...]:
    """Return whether each node above a job would borrow with it, from below the root down to its queue.

    Of two jobs the one with less has the better right: what it takes belongs to what is nearer to it.
    """
    rightful = _rightful(job, tree)
    return tuple(name not in rightful for name in reversed(tree.path(job.queue)[:-1]))


def is_entitled(job: Pending, tree: Tree) -> bool:
    """Whether a job stays within what its queue has, or its team, or a cohort below the root: others there may not borrow it."""
    return bool(_rightful(job, tree))


def may_hold(job: Pending, tree: Tree, *, below: bool) -> bool:
    """Whether borrowing limits let a job take its amount; `below`: only those below the first node that has a right to it."""
    rightful = _rightful(job, tree) if below else set()
    tree.use(job.queue, job.amount)
    found = True
    for name in tree.path(job.queue)[:-1]:
        if name in rightful:
            break
        limit = tree.nodes[name].borrowing_limit
        found &= limit is None or tree.used[name] <= tree.total[name] + limit
    tree.use(job.queue, -job.amount)
    return found


def _rightful(job: Pending, tree: Tree) -> set[str]:
    """Return the nodes below the root that would not borrow with a job."""
    tree.use(job.queue, job.amount)
    found = {name for name in tree.path(job.queue)[:-1] if not tree.is_borrowing(name)}
    tree.use(job.queue, -job.amount)
    return found


def victims(
    job: Pending,
    tree: Tree,
    holding: Mapping[str, Sequence[Holding]],
    *,
    by_priority: bool,
    spared: Container[int] = frozenset(),
    fleet: Fleet | None = None,
) -> tuple[Holding, ...]:
    """Return the jobs that have to give back what they hold, so that one may start; none where that is not possible.

    `tree` and `fleet`: what is used once the jobs that already leave are gone; `holding`: jobs by their queue.
    """
    candidates = [
        one
        for queue in _losers(job, tree, by_priority=by_priority)
        for one in holding.get(queue, ())
        if not (one.is_leaving or one.is_spared or one.job in spared)
        and (queue != job.queue or one.priority < job.priority)
    ]
    candidates.sort(key=lambda one: (one.priority, one.lost, one.amount, one.job))
    if len(candidates) > EXACT:
        return _enough(job, tree, candidates, fleet)
    every = (found for count in range(1, len(candidates) + 1) for found in combinations(candidates, count))
    return next((found for found in sorted(every, key=cost) if makes_room(job, tree, found, fleet)), ())


def cost(chosen: Sequence[Holding]) -> tuple[int, float, int, int, list[int]]:
    """Return what a choice costs: its highest priority, the work that is lost, the number of jobs, what they hold."""
    lost, amount = sum(one.lost for one in chosen), sum(one.amount for one in chosen)
    return max(one.priority for one in chosen), lost, len(chosen), amount, sorted(one.job for one in chosen)


def makes_room(job: Pending, tree: Tree, chosen: Iterable[Holding], fleet: Fleet | None = None) -> bool:
    """Whether a job may start once these are gone, and each of them holds what is borrowed until it goes."""
    gone: list[Holding] = []
    for one in sorted(chosen, key=lambda held: (held.amount, held.job)):
        if not _gives(one, job, tree):
            break
        tree.use(one.queue, -one.amount)
        gone.append(one)
    else:
        fits = _fits(job, tree, gone, fleet)
        _back(tree, gone)
        return fits
    _back(tree, gone)
    return False


def _enough(job: Pending, tree: Tree, candidates: Sequence[Holding], fleet: Fleet | None) -> tuple[Holding, ...]:
    """Take candidates in order until there is room, then spare those without which there is, the dearest first."""
    taken: dict[int, Holding] = {}
    places: dict[int, dict[str, int]] = {}

    def take(one: Holding) -> None:
        tree.use(one.queue, -one.amount)
        taken[one.job] = one
        if fleet is not None:
            places[one.job] = fleet.give_back(one.job)

    def put_back(one: Holding) -> None:
        tree.use(one.queue, one.amount)
        del taken[one.job]
        if fleet is not None:
            fleet.put_back(one.job, places.pop(one.job))

    for one in candidates:
        if _fits(job, tree, (), fleet):
            break
        if _gives(one, job, tree):
            take(one)
    fits = _fits(job, tree, (), fleet)
    if fits:
        for one in sorted(taken.values(), key=lambda held: (-held.priority, -held.lost, held.job)):
            put_back(one)
            if not _fits(job, tree, (), fleet):
                take(one)
    found = tuple(one for one in candidates if one.job in taken)
    for one in found:
        put_back(one)
    return found if fits else ()


def _fits(job: Pending, tree: Tree, gone: Sequence[Holding], fleet: Fleet | None) -> bool:
    """Whether there is room for a job, in the quota as it is used now, and on nodes once these are gone."""
    if job.amount > tree.available(job.queue):
        return False
    return fleet is None or fleet.fits_without(job.gang, [one.job for one in gone])


def _back(tree: Tree, gone: Iterable[Holding]) -> None:
    for one in gone:
        tree.use(one.queue, one.amount)


def _losers(job: Pending, tree: Tree, *, by_priority: bool) -> Iterator[str]:
    """Yield the queues whose jobs may have to go: the job's own, and those that borrow what it has a right to."""
    if by_priority:
        yield job.queue
    own, rightful = tree.path(job.queue), _rightful(job, tree)
    if not rightful:
        return
    parents = {node.parent for node in tree.nodes.values()}
    for queue in sorted(tree.nodes):
        if queue != job.queue and queue not in parents and _reclaims(own, rightful, queue, tree):
            yield queue


def _reclaims(own: Sequence[str], rightful: set[str], queue: str, tree: Tree) -> bool:
    """Whether a queue borrows, all the way up to where its path meets the other's, and the other stays within its right there."""
    path = tree.path(queue)
    meeting = next(name for name in path if name in own)
    below = path[: path.index(meeting)]
    return own[own.index(meeting) - 1] in rightful and all(tree.is_borrowing(name) for name in below)


def _gives(one: Holding, job: Pending, tree: Tree) -> bool:
    """Whether a job still holds what is borrowed, after others have gone."""
    if one.queue == job.queue:
        return True
    own, path = set(tree.path(job.queue)), tree.path(one.queue)
    return all(tree.is_borrowing(name) for name in path if name not in own)
