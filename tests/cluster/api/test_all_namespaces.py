"""Many namespaces of teams on a real API server: followed with few watches, with the right to read all and without it."""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

from jobs.clusters.kubernetes.watch import scopes
from jobs.core.attempt_ref import AttemptRef
from rig.world import await_right, let_watch_all, username
from tests.cluster.api.test_team_namespaces import let_in
from tests.cluster.conftest import NamespaceFixture, expected, launch, plan
from tests.support.patience import until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
FEW = scopes.MANY_NAMESPACES + 1
ROLE = [
    {"apiGroups": [""], "resources": ["pods", "services", "events"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["create", "get"]},
]
_numbers = count(1)


class Many:
    """Namespaces in which the account of `place` has a Role, made without what only an installation needs."""

    def __init__(self, place: NamespaceFixture):
        self.place, self.names = place, list[str]()

    def make(self, number: int) -> list[str]:
        for _ in range(number):
            name = f"t{os.getpid()}-many{next(_numbers)}"
            self._post("/api/v1/namespaces", {"metadata": {"name": name}})
            self._post(f"{RBAC}/namespaces/{name}/roles", {"metadata": {"name": "muster"}, "rules": ROLE})
            let_in(self.place, name)
            self.names.append(name)
        until(lambda: self.place.admin.get(f"/api/v1/namespaces/{self.names[-1]}/serviceaccounts/default").is_success)
        user = username(self.place.namespace)
        await_right(self.place.admin, user, namespace=self.names[-1], resource="pods", verb="watch")
        return self.names

    def _post(self, path: str, thing: dict) -> None:
        answer = self.place.admin.post(path, json=thing)
        assert answer.status_code == 201, answer.text


@pytest.fixture
def many(place) -> Iterator[Many]:
    found = Many(place)
    yield found
    for name in found.names:
        place.admin.delete(f"/api/v1/namespaces/{name}")
    withdraw(place)


def withdraw(place: NamespaceFixture) -> None:
    for kind in ("clusterrolebindings", "clusterroles"):
        place.admin.delete(f"{RBAC}/{kind}/{place.namespace}-all-namespaces")


def is_wide(cluster) -> bool:
    return len({id(view.scope) for view in cluster.views()}) == 1


def run(namespace: str) -> str:
    return f"7-{namespace.rpartition('many')[2]}"


def test_all_are_followed_at_once_where_the_account_may_and_one_by_one_again_where_it_may_not(place, many, monkeypatch):
    monkeypatch.setattr(scopes, "DENIED_SECONDS", 0.5)
    *used, unused = many.make(FEW + 1)
    cluster = place.cluster()
    updates = cluster.replica_updates()
    cluster.watch(used)
    until(lambda: all(view.as_of for view in cluster.views()))
    assert not is_wide(cluster), "not without the right"
    let_watch_all(place.admin, place.namespace)
    until(lambda: is_wide(cluster))

    seen = Counter[str]()

    def has(*runs: str) -> bool:
        seen.update(one.run for one in next(updates) if one.seen.state == "running")
        return set(runs) <= set(seen)

    maker = place.cluster()  # as another process: nothing of it is in the cache of the first one
    for namespace in (unused, used[0], used[1]):
        launch(maker, plan(run=run(namespace), namespace=namespace))
    until(lambda: has(run(used[0]), run(used[1])))
    assert run(unused) not in seen, "a namespace that is not in use is not reported"
    ref = AttemptRef(run(used[0]), 1, used[0])
    assert {one.state for one in cluster.observe(ref, expected()).replicas} == {"running"}
    assert cluster.open_attempts(used[0]) == [ref], "of all attempts in the cache only those of the namespace"
    elsewhere = AttemptRef(run(used[0]), 1, used[1])
    assert {one.state for one in cluster.observe(elsewhere, expected()).replicas} == {"absent"}
    cluster.watch({unused})
    until(lambda: has(run(unused)))

    withdraw(place)
    until(lambda: not is_wide(cluster))
    launch(maker, plan(run="8-after", namespace=used[2]))
    until(lambda: has("8-after"))


@pytest.mark.parametrize("may_watch_all", [True, False], ids=["one-watch", "one-each"])
def test_fifty_namespaces_are_followed_with_few_requests(place, many, may_watch_all):
    """The watcher and a tasks process: four watches of each kind in ten seconds at most, once all have begun."""
    names = many.make(50)
    if may_watch_all:
        let_watch_all(place.admin, place.namespace)
    processes = [place.cluster(), place.cluster()]
    for cluster in processes:
        cluster.watch(names)
    until(lambda: all(view.as_of for cluster in processes for view in cluster.views()))
    until(lambda: all(is_wide(cluster) is may_watch_all for cluster in processes))
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(counted(cluster)) for cluster in processes]
        began = time.monotonic()
        until(lambda: time.monotonic() > began + 30)
        seconds = time.monotonic() - began
    for kind in ("pods", "services", "events"):
        total = sum(one[kind] for one in opened)
        assert 1 <= total <= 4 * seconds / 10 + 1, (kind, total, seconds)
    if not may_watch_all:  # a quiet namespace is confirmed by the server about once a minute
        assert all(view.as_of > time.time() - 90 for cluster in processes for view in cluster.views())


@contextlib.contextmanager
def counted(cluster) -> Iterator[Counter[str]]:
    """Count the watches that an adapter opens, by kind."""
    found, lines = Counter[str](), cluster.api.lines

    def noted(path, **said):
        found[path.rpartition("/")[2]] += 1
        return lines(path, **said)

    cluster.api.lines = noted
    try:
        yield found
    finally:
        cluster.api.lines = lines
