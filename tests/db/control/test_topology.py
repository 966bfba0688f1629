"""Where replicas landed: noted by their nodes' labels, once the cluster tells them, and shown beside the ranks."""

from contextlib import contextmanager

import pytest

from common import faultpoints
from jobs import clusters
from jobs.control import topology
from jobs.core.verdict import ReplicaState
from jobs.models import Replica
from queues import services

pytestmark = pytest.mark.django_db
RACK, BLOCK = "example.org/rack", "example.org/block"
NODES = {"n1": {RACK: "r1", BLOCK: "b1", "other": "x"}, "n2": {RACK: "r2", BLOCK: "b1"}, "n3": {}}


@pytest.fixture
def racked(on_pods, people):
    template = {"topology": {"prefer": RACK, "require": BLOCK}}
    services.set_template(queue=on_pods, by=people.admin, template=template)
    on_pods.refresh_from_db()
    return on_pods


def on_nodes(job, *names: str) -> None:
    for index, name in enumerate(names):
        Replica.objects.filter(job=job, index=index).update(node=name)


def noted(job) -> list[object]:
    return list(Replica.objects.filter(job=job).order_by("index").values_list("topology", flat=True))


def test_the_levels_of_the_template_are_noted_once_the_nodes_are_known(lab, racked, client, people):
    job = lab.running(nodes=3, nproc_per_node=1)
    on_nodes(job, "n1", "n2", "")
    assert topology.note_all() == 0, "the cluster does not say what nodes it has"
    clusters.get(racked.cluster).nodes = NODES
    assert topology.note_all() == 2
    assert noted(job) == [{RACK: "r1", BLOCK: "b1"}, {RACK: "r2", BLOCK: "b1"}, None]
    assert topology.note_all() == 0
    on_nodes(job, "n1", "n2", "n3")
    assert topology.note_all() == 1
    assert noted(job)[2] == {}, "a node without these labels"
    client.force_login(people.owner)
    page = client.get(f"/jobs/{job.pk}").text
    assert f"{RACK}: r1 (1 replica), r2 (1)" in page and f"{BLOCK}: b1 (2 replicas)" in page
    told = client.get(f"/api/v1/jobs/{job.pk}/replicas").json()["results"]
    assert [one["topology"] for one in told] == noted(job)


def test_what_has_no_such_template_or_has_ended_is_left_alone(lab, on_pods, people):
    plain = lab.running()
    on_nodes(plain, "n1", "n2")
    clusters.get(on_pods.cluster).nodes = NODES
    assert topology.note_all() == 0 and noted(plain) == [None, None]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_while_it_notes_them_is_made_up_for(lab, racked, monkeypatch, when):
    clusters.get(racked.cluster).nodes = NODES
    job = lab.running(nodes=2, nproc_per_node=1)
    on_nodes(job, "n1", "n2")

    @contextmanager
    def dies(name: str):
        if when == "after":
            yield
        raise KeyboardInterrupt(name)
        yield

    with monkeypatch.context() as patched:
        patched.setattr(faultpoints, "around", dies)
        with pytest.raises(KeyboardInterrupt, match=r"topology\.note"):
            topology.note_all()
    topology.note_all()
    assert noted(job) == [{RACK: "r1", BLOCK: "b1"}, {RACK: "r2", BLOCK: "b1"}]


def test_a_replica_that_is_replaced_is_noted_again(lab, racked):
    clusters.get(racked.cluster).nodes = NODES
    job = lab.running(nodes=2, nproc_per_node=1, min_nodes=1)
    on_nodes(job, "n1", "n2")
    assert topology.note_all() == 2
    lab.cluster.lose(job.run, 1, "worker", index=1)
    lab.visit(job, times=3)
    row = Replica.objects.get(job=job, index=1)
    assert (row.incarnation, row.topology) == (1, None)
    assert row.state in (ReplicaState.PENDING, ReplicaState.RUNNING)
