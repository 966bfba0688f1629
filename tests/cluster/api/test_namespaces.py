"""The option NAMESPACE changes while jobs run: their attempts go on in the namespace where they were made.

The new account gets the old namespace's role as docs/kubernetes.md describes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from common.errors import Sealed, Unreachable
from jobs import clusters, services
from jobs.clusters.kubernetes.adapter import KubernetesCluster
from jobs.clusters.kubernetes.build import labels
from jobs.control import orphans
from jobs.control.reconciler import visit
from jobs.control.store import DjangoStore
from jobs.core.lifecycle import Phase
from jobs.models import Job
from jobs.scheduling.scheduler import schedule
from queues.models import Queue
from rig.world import abandon, account_namespace, settle
from tests.cluster.api.testbed import KIND
from tests.cluster.conftest import REF, TOLERATIONS, NamespaceFixture, expected, plan, pod_name, run_all
from tests.support.patience import until

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings"


@dataclass
class Move:
    """The namespaces before and after the change, each with its account."""

    place: NamespaceFixture
    old: str
    new: str
    options: dict[str, dict[str, Any]]  # of a cluster, by its NAMESPACE

    def cluster(self, namespace: str, **more: Any) -> KubernetesCluster:
        made = KubernetesCluster(**{**self.options[namespace], **more})
        self.place.clusters.append(made)
        return made

    def let_in(self) -> None:
        """Give the new namespace's account the old one's role."""
        subject = {"kind": "ServiceAccount", "name": "muster", "namespace": account_namespace(self.new)}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "muster"}
        thing = {"metadata": {"name": "muster-of-new"}, "subjects": [subject], "roleRef": role}
        assert self.place.admin.post(BINDINGS.format(self.old), json=thing).status_code == 201

    def there(self, kind: str, namespace: str) -> dict[str, dict]:
        items = self.place.admin.get(f"/api/v1/namespaces/{namespace}/{kind}").json()["items"]
        return {one["metadata"]["name"]: one for one in items}


@pytest.fixture
def move(place: NamespaceFixture):
    old, new = place.namespace, f"{place.namespace}-new"
    kubeconfigs = {old: place.kubeconfig, new: settle(place.plane, new)}
    yield Move(place, old, new, {
        name: {
            "KUBECONFIG": str(path), "NAMESPACE": name, "IMAGE": "x:1", "CONTROL_URL": "http://muster.test",
            "TOLERATIONS": TOLERATIONS, "agent": place.agent,
        } for name, path in kubeconfigs.items()
    })  # fmt: skip
    abandon(place.admin, new)


def answered(ask):
    """The answer, or None while the server does not know the account's new role yet."""
    try:
        return ask()
    except Unreachable:
        return None


def refusal(ask) -> str:
    """The words in which it is refused."""
    with pytest.raises(Unreachable) as caught:
        ask()
    return str(caught.value)


def test_an_attempt_is_observed_and_ended_in_its_namespace_after_the_option_has_changed(move):
    run_all(move.cluster(move.old))
    before = {name: one["metadata"]["uid"] for name, one in move.there("pods", move.old).items()}
    move.let_in()
    cluster, ref = move.cluster(move.new), REF.within(move.old)

    seen = until(lambda: answered(lambda: cluster.observe(ref, expected())))
    assert [one.state for one in seen.replicas] == ["running", "running"]
    assert [one.state for one in cluster.observe(REF, expected()).replicas] == ["absent", "absent"]
    until(lambda: answered(lambda: cluster.open_attempts(move.old)) == [ref])
    until(lambda: answered(cluster.open_attempts) == [])  # its watch may not have begun yet
    cluster.apply(plan(namespace=move.old))  # what is there stays
    assert {name: one["metadata"]["uid"] for name, one in move.there("pods", move.old).items()} == before
    again = plan(namespace=move.old, incarnations={("worker", 1): 1}, wanted=frozenset({("worker", 1)}))
    cluster.end_replicas(ref, [("worker", 1)], 3)
    until(lambda: pod_name(1) not in move.there("pods", move.old))
    cluster.apply(again)
    (container,) = move.there("pods", move.old)[f"{pod_name(1)}-r1"]["spec"]["containers"]
    env = {one["name"]: one["value"] for one in container["env"]}
    assert env["ADDRESS"] == labels.host("7-abc", 1, "worker", 0, namespace=move.old)

    def is_gone() -> bool:
        cluster.delete(ref, 3)
        seen = cluster.observe(ref, expected())
        return seen.is_sealed and not any(one.is_alive for one in seen.replicas)

    until(is_gone)
    assert move.there("pods", move.old) == {}
    with pytest.raises(Sealed):
        cluster.apply(plan(namespace=move.old))
    cluster.apply(plan(attempt=2))
    assert set(move.there("pods", move.new)) == {pod_name(0, 2), pod_name(1, 2)}
    assert set(move.there("services", move.new)) == {"m-7-abc-2"}, "nothing of the first attempt came here"


def test_a_log_is_read_in_the_namespace_of_its_attempt(move):
    """No kubelet has the log, so the connection is cut: the words name where it was asked for."""
    run_all(move.cluster(move.old))
    move.let_in()
    with move.place.gate() as gate:
        cluster = move.cluster(move.new, KUBECONFIG=str(gate.kubeconfig(Path(move.options[move.new]["KUBECONFIG"]))))
        until(lambda: answered(lambda: cluster.observe(REF.within(move.old), expected())))
        gate.is_open = False
        for ref, namespace in ((REF.within(move.old), move.old), (REF, move.new)):
            path = f"api/v1/namespaces/{namespace}/pods/{pod_name(1)}/log"
            with pytest.raises(Unreachable, match=f"the log {path} cannot be read"):
                cluster.read_log(ref, ("worker", 1, 0), None, lambda _: True)
        move.place.clusters.remove(cluster)
        cluster.close()


def test_without_the_right_in_the_old_namespace_nothing_is_taken_for_lost_and_the_words_name_it(move):
    run_all(move.cluster(move.old))
    cluster, ref = move.cluster(move.new), REF.within(move.old)
    for ask in (lambda: cluster.observe(ref, expected()), lambda: cluster.delete(ref, 3)):
        with pytest.raises(Unreachable, match=f'is forbidden: .* in the namespace "{move.old}"'):
            ask()
    until(lambda: refusal(lambda: cluster.open_attempts(move.old)).endswith(f'in the namespace "{move.old}"'))
    assert refusal(lambda: cluster.open_attempts(move.old)).startswith(f"namespace {move.old} cannot be watched: ")
    until(lambda: answered(cluster.open_attempts) == [])  # its own namespace is not affected
    move.let_in()
    seen = until(lambda: answered(lambda: cluster.observe(ref, expected())))
    assert [one.state for one in seen.replicas] == ["running", "running"]


def test_changes_in_a_namespace_that_is_watched_too_are_reported(move):
    run_all(move.cluster(move.old))
    move.let_in()
    cluster = move.cluster(move.new)
    updates, changes = cluster.replica_updates(), cluster.changes()
    cluster.watch({move.old})
    seen: dict[int, str] = {}

    def has(index: int, state: str) -> bool:
        seen.update({one.seen.index: one.seen.state for one in next(updates) if (one.run, one.attempt) == ("7-abc", 1)})
        return seen.get(index) == state

    until(lambda: has(0, "running") and has(1, "running"))
    move.place.annotate(pod_name(1), exit_code="3")
    until(lambda: has(1, "failed"))
    until(lambda: next(changes) == "7-abc")


def test_a_namespace_that_nothing_asks_for_is_not_watched_for_ever(move):
    now = [0.0]
    cluster = move.cluster(move.new, clock=lambda: now[0])
    cluster.watch({move.old, move.new})
    assert {one.namespace for one in cluster.views()} == {move.old, move.new}
    now[0] += 3600.0
    cluster.watch({move.old})
    now[0] += 5400.0
    cluster.view()
    assert {one.namespace for one in cluster.views()} == {move.old, move.new}
    now[0] += 5400.0
    cluster.view()
    assert {one.namespace for one in cluster.views()} == {move.new}


class Lives:
    """Jobs of a cluster whose option changes as by a restart with another MUSTER_CLUSTERS."""

    def __init__(self, move: Move, settings: Any, user: Any, queue: Queue):
        self.move, self.settings, self.user, self.queue = move, settings, user, queue

    def set_namespace(self, namespace: str) -> None:
        options = self.move.options[namespace]
        self.settings.CLUSTERS = {"gpus": {"BACKEND": KIND, "OPTIONS": options}}
        self.move.place.clusters.append(clusters.get("gpus"))

    def submit(self) -> Job:
        sent = {"command": "torchrun train.py", "nodes": 1, "nproc_per_node": 4, "max_retries": 0}
        return self.until(services.submit(user=self.user, queue=self.queue, sent=sent)[0], Phase.RUNNING)

    def visit(self, job: Job) -> Job:
        schedule()
        visit(job.pk, store=DjangoStore(), clusters=clusters.get, clock=timezone.now, owner="test")
        job.refresh_from_db()
        return job

    def until(self, job: Job, phase: Phase) -> Job:
        until(lambda: self.visit(job).phase == phase)
        return job


@pytest.fixture
def lives(move, settings, people, team):
    settings.CLUSTERS = {"gpus": {"BACKEND": KIND, "OPTIONS": move.options[move.old]}}
    queue = Queue.objects.create(name="gpus", team=team, cluster="gpus", nominal=16, resource="gpu", gpus_per_node=8)
    return Lives(move, settings, people.owner, queue)


def test_jobs_go_on_and_end_although_the_option_has_changed_and_new_ones_run_in_the_new_namespace(move, lives):
    lives.set_namespace(move.old)
    finishing, cancelled = lives.submit(), lives.submit()
    lives.set_namespace(move.new)
    for _ in range(2):  # as long as the new account has no right there, the cluster does not answer and no job is lost
        assert (lives.visit(finishing).phase, finishing.attempt) == (Phase.RUNNING, 1)
    assert finishing.events.filter(kind="note", message__contains=move.old).count() == 1

    move.let_in()
    move.place.annotate(f"{finishing.run}-1-worker-0", exit_code="0")
    lives.until(finishing, Phase.SUCCEEDED)
    services.cancel(job=cancelled, by=lives.user)
    lives.until(cancelled, Phase.CANCELLED)
    assert move.there("pods", move.old) == {}
    assert all(labels.SEALED in one["metadata"]["labels"] for one in move.there("services", move.old).values())

    last = lives.submit()
    assert set(move.there("pods", move.new)) == {f"{last.run}-1-worker-0"}
    assert list(last.attempts.values_list("namespace", flat=True)) == [move.new]


def test_a_stray_beside_an_attempt_of_an_earlier_setting_is_ended(move, lives):
    lives.set_namespace(move.old)
    lasting, ended = lives.submit(), lives.submit()
    long_ago = timezone.now() - 6 * orphans.SETTLED
    Job.objects.filter(pk=ended.pk).update(phase=Phase.SUCCEEDED, phase_since=long_ago, finished_at=long_ago)
    lives.set_namespace(move.new)
    move.let_in()
    assert until(orphans.sweep_all) == 1

    def is_alone() -> bool:
        orphans.sweep_all()
        return set(move.there("pods", move.old)) == {f"{lasting.run}-1-worker-0"}

    until(is_alone)
