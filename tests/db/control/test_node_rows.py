"""Nodes of clusters become rows: only what changed is written, and how each node changed is kept for a while."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from common import faultpoints
from jobs import clusters
from jobs.control import node_rows
from jobs.core.node_seen import NodeSeen
from jobs.models import ClusterLook, ClusterNode, NodeHistory
from queues import services

pytestmark = pytest.mark.django_db
ALIAS = "local"
GPU = "nvidia.com/gpu"
MOST_STATEMENTS = 8  # of a look at any number of unchanged nodes, with the two of its transaction


def node(name: str, gpus: int = 8, **more) -> NodeSeen:
    return NodeSeen(name, devices={GPU: gpus}, **more)


@pytest.fixture
def cluster(on_pods):
    found = clusters.get(ALIAS)
    found.listed = [node("n1", product="H100", others=2), node("n2")]
    return found


def told() -> list[tuple[str, str, str]]:
    return list(NodeHistory.objects.order_by("id").values_list("node__name", "kind", "words"))


def row(name: str) -> ClusterNode:
    return ClusterNode.objects.get(cluster=ALIAS, name=name)


def test_the_nodes_of_a_cluster_become_rows_with_numbers(cluster):
    assert node_rows.write_all() == 2
    one, other = ClusterNode.objects.order_by("number")
    assert (one.name, one.number, one.gpus, one.others, one.product) == ("n1", 1, 8, 2, "H100")
    assert (other.name, other.number, other.others) == ("n2", 2, None)
    assert told() == [("n1", "appeared", "8 nvidia.com/gpu"), ("n2", "appeared", "8 nvidia.com/gpu")]
    look = ClusterLook.objects.get()
    assert (look.cluster, look.problem) == (ALIAS, "") and look.seen_at == look.asked_at


def test_only_what_changed_is_written(cluster):
    node_rows.write(ALIAS)
    first = row("n1").changed_at
    cluster.listed = [cluster.listed[0], replace(cluster.listed[1], silence="kubelet stopped", is_cordoned=True)]
    assert node_rows.write(ALIAS) == 1
    assert row("n1").changed_at == first < row("n2").changed_at == row("n2").silent_since
    assert told()[2:] == [("n2", "not_ready", "kubelet stopped"), ("n2", "cordoned", "")]
    since = row("n2").silent_since
    cluster.listed = [cluster.listed[0], replace(cluster.listed[1], silence="no network")]
    assert node_rows.write(ALIAS) == 1 and len(told()) == 4, "it says otherwise why, and is still silent"
    assert (row("n2").silent_since, row("n2").silence) == (since, "no network")
    cluster.listed = [cluster.listed[0], node("n2")]
    node_rows.write(ALIAS)
    assert told()[4:] == [("n2", "ready", ""), ("n2", "uncordoned", "")] and row("n2").silent_since is None


def test_a_thousand_unchanged_nodes_cost_few_statements(cluster):
    cluster.listed = [node(f"n{number}", labels={"a": "b"}, others=1) for number in range(1000)]
    with CaptureQueriesContext(connection) as first:
        assert node_rows.write(ALIAS) == 1000
    with CaptureQueriesContext(connection) as again:
        assert node_rows.write(ALIAS) == 0
    assert len(again) <= MOST_STATEMENTS, [one["sql"][:80] for one in again]
    assert len(first) <= MOST_STATEMENTS + 6, [one["sql"][:80] for one in first]
    cluster.listed[7] = replace(cluster.listed[7], is_cordoned=True)
    with CaptureQueriesContext(connection) as one:
        assert node_rows.write(ALIAS) == 1
    assert len(one) <= MOST_STATEMENTS + 4


def test_a_node_that_is_gone_keeps_its_row_and_number(cluster):
    node_rows.write(ALIAS)
    cluster.listed = [node("n1"), node("n3")]
    node_rows.write(ALIAS)
    assert row("n2").gone_at is not None and row("n3").number == 3
    assert ("n2", "gone", "") in told()
    assert node_rows.write(ALIAS) == 0, "gone is noted once"
    cluster.listed = [node("n1"), node("n2"), node("n3")]
    node_rows.write(ALIAS)
    assert (row("n2").gone_at, row("n2").number) == (None, 2)
    assert told()[-1] == ("n2", "appeared", "8 nvidia.com/gpu")


def test_without_an_answer_or_the_right_nothing_changes_and_the_look_says_why(cluster):
    node_rows.write(ALIAS)
    seen_at = ClusterLook.objects.get().seen_at
    cluster.is_reachable = False
    assert node_rows.write(ALIAS) == 0
    look = ClusterLook.objects.get()
    assert (look.problem, look.seen_at) == ("the cluster does not answer", seen_at) and look.asked_at > seen_at
    cluster.is_reachable, cluster.listed = True, None
    node_rows.write(ALIAS)
    assert ClusterLook.objects.get().problem == node_rows.NO_RIGHT
    assert ClusterNode.objects.filter(gone_at=None).count() == 2


def test_an_older_look_does_not_undo_a_newer_one(cluster):
    node_rows.write(ALIAS)
    ClusterLook.objects.update(asked_at=timezone.now() + timedelta(minutes=1))
    cluster.listed = []
    assert node_rows.write(ALIAS) == 0 and ClusterNode.objects.filter(gone_at=None).count() == 2


def test_of_labels_only_levels_of_the_topology_are_kept(cluster, on_pods, people):
    services.set_template(queue=on_pods, by=people.admin, template={"topology": {"prefer": "example.org/rack"}})
    cluster.listed = [node("n1", labels={"example.org/rack": "r1", "secret": "x"})]
    node_rows.write(ALIAS)
    assert row("n1").levels == {"example.org/rack": "r1"}


def test_a_cluster_that_says_too_much_is_bounded(cluster, monkeypatch):
    monkeypatch.setattr(node_rows, "MOST_NODES", 2)
    cluster.listed = [node("n" * 400, silence="x" * 9000, taints=("t",) * 99), node("n2"), node("n3")]
    assert node_rows.write(ALIAS) == 2
    assert ClusterLook.objects.get().problem == "it has 3 nodes; the first 2 are shown"
    assert len(row("n" * 253).silence) == 500 and len(row("n" * 253).taints) == 20


def test_each_node_keeps_its_newest_changes_only(cluster, monkeypatch):
    monkeypatch.setattr(node_rows, "MOST_CHANGES", 3)
    for number in range(5):
        cluster.listed = [node("n1", number), node("n2")]
        node_rows.write(ALIAS)
    kept = NodeHistory.objects.filter(node__name="n1").order_by("id").values_list("words", flat=True)
    assert [words.split()[0] for words in kept] == ["2", "3", "4"]
    assert NodeHistory.objects.filter(node__name="n2").count() == 1


def test_old_changes_and_nodes_that_are_long_gone_are_forgotten(cluster):
    node_rows.write(ALIAS)
    cluster.listed = [node("n1")]
    node_rows.write(ALIAS)
    now = timezone.now()
    assert node_rows.forget(now=now) == 0
    NodeHistory.objects.filter(node__name="n1").update(at=now - timedelta(days=31))
    ClusterNode.objects.filter(name="n2").update(gone_at=now - timedelta(days=31))
    node_rows.forget(now=now)
    assert list(ClusterNode.objects.values_list("name", flat=True)) == ["n1"] and told() == []


def test_a_cluster_that_breaks_does_not_keep_others_from_being_looked_at(cluster, settings):
    broken = {"BACKEND": "jobs.clusters.kubernetes.KubernetesCluster", "OPTIONS": {"NAMESPCE": "x"}}
    settings.CLUSTERS = {"broken": broken, **settings.CLUSTERS}
    clusters.get(ALIAS).listed = cluster.listed
    assert node_rows.write_all() == 2


def test_a_cluster_without_nodes_is_not_asked(queue):
    assert node_rows.write_all() == 0 and not ClusterLook.objects.exists()


@pytest.mark.parametrize("point", ["nodes.ask", "nodes.record", "nodes.forget"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_while_it_writes_them_is_made_up_for(cluster, monkeypatch, point, when):
    def dies(name: str) -> None:
        if name == f"{point}.{when}":
            raise KeyboardInterrupt(name)

    with monkeypatch.context() as patched:
        patched.setattr(faultpoints, "point", dies)
        with pytest.raises(KeyboardInterrupt, match=point):
            node_rows.forget(now=timezone.now()) if point == "nodes.forget" else node_rows.write(ALIAS)
    node_rows.write(ALIAS)
    node_rows.forget(now=timezone.now())
    assert told() == [("n1", "appeared", "8 nvidia.com/gpu"), ("n2", "appeared", "8 nvidia.com/gpu")]
