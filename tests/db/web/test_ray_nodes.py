"""The cluster of a Ray job on its page and in the API, as its head's agent tells of it."""

import re

import pytest
from django.template.loader import render_to_string
from django.utils import timezone

from jobs.ingest import apply
from jobs.web import ranks
from tests.support.builders import batch, identity, item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]
NODES = [
    {"name": "head-0", "cpu": [0, 0], "object_store_bytes": [0, 300 * 2**20], "actors": 0},
    {"name": "worker-0", "cpu": [1.5, 2], "gpu": [1, 4], "object_store_bytes": [30 * 2**20, 300 * 2**20], "actors": 3},
    {"name": "worker-1", "cpu": [2, 2], "gpu": [4, 4], "object_store_bytes": [0, 300 * 2**20], "actors": 1},
]


@pytest.fixture
def job(lab):
    return lab.running(framework="ray", command="python3 driver.py", nodes=2, nproc_per_node=2)


def tell(job, nodes=NODES, *, seq: int = 1, **more) -> None:
    told = item("nodes", framework="Ray 2.60.0", nodes=nodes, **more)
    apply.apply_batch(identity=identity(job, role="head"), batch=batch(seq, told))


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_each_node_and_the_sum_are_shown(owner, job):
    assert "Ray 2.60.0" not in owner.get(f"/jobs/{job.pk}").text
    tell(job, waiting=48)
    page = words(owner.get(f"/jobs/{job.pk}").text)
    assert (
        "Ray 2.60.0 · 3 nodes · CPU 3.5 of 4 · GPU 5 of 8 · Object store 30 MiB of 900 MiB · Actors 4 "
        "· waiting for room: 48 tasks or actors"
    ) in page
    assert "running CPU 1.5 of 2 GPU 1 of 4 Object store 30 MiB of 300 MiB Actors 3" in page
    assert "head-0" in page and "running Object store 0 B of 300 MiB" in page


def test_the_newest_numbers_count(owner, job):
    tell(job, waiting=48)
    tell(job, NODES[:2], seq=2, waiting=0)
    assert "Ray 2.60.0 · 2 nodes · CPU 1.5 of 2" in words(owner.get(f"/jobs/{job.pk}").text)
    assert "waiting for room" not in owner.get(f"/jobs/{job.pk}").text


def test_a_large_cluster_is_read_once(owner, job, monkeypatch):
    calls = []
    own = ranks.as_alone
    monkeypatch.setattr(ranks, "as_alone", lambda *given, **more: calls.append(1) or own(*given, **more))
    tell(job)
    grid = ranks.matrix(job, attempt=1, now=timezone.now())
    render_to_string("jobs/_matrix.html", {"grid": grid, "job": job})
    assert len(calls) == len(grid.rows) == 3


def test_an_ended_head_has_no_numbers_any_more(owner, lab, job):
    tell(job, waiting=48)
    lab.cluster.finish(job.run, 1, "head", index=0, exit_code=0)
    lab.visit(job, times=4)
    assert "Ray 2.60.0" not in owner.get(f"/jobs/{job.pk}").text


def test_the_api_has_them_with_the_heads_replica(owner, job):
    tell(job, waiting=2, actors_waiting=1)
    head, *workers = owner.get(f"/api/v1/jobs/{job.pk}/replicas").json()["results"]
    assert (head["role"], [one["name"] for one in head["nodes"]["nodes"]]) == (
        "head",
        ["head-0", "worker-0", "worker-1"],
    )
    assert (head["nodes"]["waiting"], head["nodes"]["actors_waiting"], head["nodes"]["nodes"][1]["gpu"]) == (
        2,
        1,
        [1, 4],
    )
    assert [one["nodes"] for one in workers] == [None, None]


def test_a_band_says_how_much_of_it_is_up_and_which_places_may_come(owner, lab):
    job = lab.running(framework="ray", command="python3 driver.py", nodes=3, min_nodes=1, nproc_per_node=2)
    page = words(owner.get(f"/jobs/{job.pk}").text)
    assert "head 1 replica" in page and "worker 3 of 1 to 3 replicas are up" in page
    assert re.search(r"4 replicas, admitted together at \d\d:\d\d:\d\d UTC", page)
    job.replicas.filter(role="worker", index=2).update(state="pending")
    job.replicas.filter(role="worker", index=1).update(state="failed")
    page = owner.get(f"/jobs/{job.pk}").text
    assert "worker 1 of 1 to 3 replicas are up" in words(page)
    assert page.count("may-come") == 1 and "may come" in words(page)
    job.replicas.filter(role="worker", index=0).update(state="pending")
    assert "may-come" not in owner.get(f"/jobs/{job.pk}").text, "the minimum is not there"


def test_the_band_of_a_mesh_says_how_many_of_its_hosts_are_up(owner, lab):
    job = lab.running(framework="monarch", command="python3 train.py", nodes=2, nproc_per_node=2)
    assert "mesh 2 replicas, 4 ranks" in words(owner.get(f"/jobs/{job.pk}").text)
    job.replicas.filter(role="mesh", index=1).update(state="pending")
    assert "mesh 1 of 2 replicas is up, 4 ranks" in words(owner.get(f"/jobs/{job.pk}").text)
