"""The contract of clusters that have keepers (`jobs.clusters.Keeps`): run on the fake, and on a real API server."""

from collections.abc import Callable

from jobs.clusters import Keeps
from jobs.core.keeping import Errand
from tests.support.patience import until

ERRAND = Errand("scratch", path="jobs", folders=("1-abc", "2-def"))


def check_one_that_does_not_start(
    cluster: Keeps, *, keepers: Callable[[], int], advance: Callable[[float], None]
) -> None:
    """`keepers`: how many there are. `advance` moves the cluster's clock by seconds. No keeper can start meanwhile."""
    assert isinstance(cluster, Keeps)
    for _ in range(2):  # the second one is made as the first
        until(lambda: cluster.keep(ERRAND) is None and keepers() == 1)
        assert cluster.keep(ERRAND) is None and keepers() == 1, "a claim has one"
        assert cluster.keep(Errand("scratch")) is None and keepers() == 1, "also for another errand"
        advance(700)
        kept = cluster.keep(ERRAND)
        advance(-700)
        assert kept is not None and kept.problem and not kept.gone and kept.use is None
        until(lambda: keepers() == 0)
