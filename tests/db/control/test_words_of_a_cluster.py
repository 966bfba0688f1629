"""A cluster that does not answer ends no job, and the trouble is noted in the job's history."""

import pytest

from common.errors import Unreachable
from jobs.control.store import TROUBLE
from jobs.core.lifecycle import Phase
from tests.support.builders import Lab


def notes(job) -> list[tuple[int, str]]:
    return list(job.events.filter(kind="note").order_by("id").values_list("attempt", "message"))


def test_an_unreachable_cluster_is_noted_once_and_ends_nothing(lab):
    job = lab.running()
    lab.cluster.is_reachable = False
    lab.visit(job, times=5)
    assert job.phase == Phase.RUNNING
    assert notes(job) == [(1, f"{TROUBLE}the cluster does not answer")]


def test_the_trouble_is_noted_again_for_the_next_attempt(lab):
    job = lab.running(max_retries=1)
    for attempt in (1, 2):
        lab.cluster.is_reachable = False
        lab.visit(job)
        lab.cluster.is_reachable = True
        if attempt == 1:
            lab.finish(job, 1)
    assert (job.phase, [attempt for attempt, _ in notes(job)]) == (Phase.RUNNING, [1, 2])


@pytest.mark.parametrize("said, count", [
    (["25 of 60 done, then: 429", "31 of 60 done, then: 429"], 1),
    (["the pods: the cluster does not accept our credentials", "the pods: it answered 500"], 2),
    (["x" * 50 + "1", "x" * 50 + "2"], 1),
])  # fmt: skip
def test_messages_that_differ_only_in_numbers_are_noted_once(lab: Lab, monkeypatch, said, count):
    job = lab.running()
    left = list(said)

    def observe(*_) -> None:
        raise Unreachable(left.pop(0))

    monkeypatch.setattr(lab.cluster, "observe", observe)
    lab.visit(job, times=2)
    assert [message for _, message in notes(job)] == [f"{TROUBLE}{one}" for one in said[:count]]


def test_the_note_is_shown_in_the_api(lab, as_, people):
    job = lab.running()
    lab.cluster.is_reachable = False
    lab.visit(job)
    events = as_(people.viewer).get(f"/api/v1/jobs/{job.pk}/events").json()["results"]
    assert f"{TROUBLE}the cluster does not answer" in [one["message"] for one in events]


def test_a_warning_from_the_launch_is_noted_and_the_job_runs(lab, monkeypatch):
    launch = lab.cluster.apply

    def apply(plan) -> str:
        launch(plan)
        return "Other pods of the cluster can reach"

    monkeypatch.setattr(lab.cluster, "apply", apply)
    job = lab.running()
    assert job.phase == Phase.RUNNING
    assert notes(job) == [(1, "Other pods of the cluster can reach")]
