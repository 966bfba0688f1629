"""Elastic jobs in Postgres: submission, plan, replacement of replicas, and the state of each rank."""

import time
from dataclasses import replace

import pytest
from django.core import signing
from django.utils import timezone

from accounts.models import Token
from common.errors import NotAllowed, Refused
from jobs.control.store import plan_of
from jobs.core import replacement
from jobs.core.agent_identity import AgentIdentity
from jobs.ingest import agent_tokens, apply, replica_rows, translate
from jobs.logs import reader
from jobs.logs.reader import LogSource
from jobs.models import Job, Rank, Replica
from tests.db.api.test_api import SENT, Api
from tests.support.builders import batch, identity, item, log_item

pytestmark = pytest.mark.django_db
T = float(int(time.time()) - 600)  # near the present: the control plane clamps times that are far off


@pytest.fixture
def api(client, people) -> Api:
    return Api(client, Token.issue(people.owner, "test")[1])


def test_a_plan_and_a_job_show_the_minimum_and_maximum_of_nodes(api, queue):
    asked = {**SENT, "command": ["torchrun", "--nnodes=1:2", "train.py"]}
    del asked["nodes"]
    plan = api.post("/plans", asked).json()
    assert plan["distribution"] == {"nodes": 2, "min_nodes": 1, "nproc_per_node": 2, "world_size": 4}
    assert plan["asked"] == {"cpu": 4}  # the maximum: replicas that return need room
    job = api.post("/jobs", asked).json()
    assert (job["nodes"], job["min_nodes"]) == (2, 1)
    assert Job.objects.get().slots == 4


def test_a_contradiction_is_refused_with_its_field(api, queue):
    answer = api.post("/jobs", {**SENT, "min_nodes": 3})
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert (problem["field"], problem["value"]) == ("min_nodes", 3)


def test_a_rank_is_identified_by_its_slot_and_shows_its_rank_in_torchrun(api, lab):
    job = lab.running(min_nodes=1)
    running = item("rank", rank=3, local_rank=1, pid=7, state="running", at=T, world_rank=1, world_size=2)
    apply.apply_batch(identity=identity(job, 1), batch=batch(1, running))
    ranks = api.get(f"/jobs/{job.pk}/ranks").json()["results"]
    assert [(one["rank"], one["world_rank"], one["world_size"]) for one in ranks][2:] == [(2, None, None), (3, 1, 2)]


# -- replicas lost and replaced within the attempt


def rows(job: Job) -> list[tuple[int, int, str]]:
    return list(job.replicas.filter(attempt=job.attempt).values_list("index", "incarnation", "state"))


def elastic(lab, **sent) -> Job:
    return lab.running(**{"nodes": 3, "nproc_per_node": 1, "min_nodes": 2, **sent})


def test_a_lost_replica_is_replaced_within_the_attempt_and_this_is_recorded(lab):
    job = elastic(lab)
    lab.cluster.lose(job.run, 1, "worker", index=2)
    job = lab.visit(job, times=3)
    assert (job.phase, job.attempt, job.failures) == ("running", 1, 0)
    assert rows(job) == [(0, 0, "running"), (1, 0, "running"), (2, 1, "running")]
    event = job.events.get(kind="replaced")
    assert "worker-2 vanished" in event.message
    assert "1 of at most 10 times" in event.message
    job = lab.finish(job, 0, 0, 0)
    assert (job.phase, job.attempt) == ("succeeded", 1)


def test_a_failed_replica_is_replaced_too(lab):
    job = elastic(lab)
    lab.cluster.finish(job.run, 1, "worker", index=1, exit_code=7)
    job = lab.visit(job, times=3)
    assert rows(job)[1] == (1, 1, "running")
    assert "worker-1 exited with code 7" in job.events.get(kind="replaced").message


def test_a_replica_is_replaced_only_after_its_container_log_is_read(lab):
    job = elastic(lab)
    lab.cluster.finish(job.run, 1, "worker", index=1, exit_code=7)
    job = lab.visit(job, times=2, backfill_logs=lambda held, **_: False)
    assert (job.phase, rows(job)[1]) == ("running", (1, 0, "failed"))
    job = lab.visit(job, times=2, backfill_logs=lambda held, **_: True)
    assert rows(job)[1] == (1, 1, "running")


def test_a_replica_on_a_silent_node_is_removed_before_it_is_replaced(lab):
    job = elastic(lab)
    lab.cluster.silence(job.run, 1, "worker", index=1, node="node-7")
    alive = [len(lab.cluster.alive(job.run))]
    for _ in range(3):
        job = lab.visit(job)
        alive.append(len(lab.cluster.alive(job.run)))
    assert max(alive) == 3  # never more replicas than the quota covers
    assert rows(job)[1] == (1, 1, "running")


def test_below_the_minimum_the_attempt_ends_and_names_the_first_failed_replica(lab):
    job = elastic(lab)
    for index in (1, 2):
        lab.cluster.finish(job.run, 1, "worker", index=index, exit_code=3)
    job = lab.visit(job, times=4)
    assert job.phase == "failed"
    assert job.message == "worker-1 exited with code 3; 1 of at least 2 replicas are left"
    assert not job.events.filter(kind="replaced").exists()


def test_losing_replica_0_ends_the_attempt_and_a_retry_starts_afresh(lab):
    job = elastic(lab, max_retries=1)
    lab.cluster.lose(job.run, 1, "worker", index=1)
    job = lab.visit(job, times=3)
    lab.cluster.lose(job.run, 1, "worker", index=0)
    job = lab.visit(job, times=6)
    assert (job.attempt, job.phase, job.failures) == (2, "running", 1)
    assert rows(job) == [(0, 0, "running"), (1, 0, "running"), (2, 0, "running")]
    assert any("all others met there" in event.message for event in job.events.all())


def test_a_job_that_is_not_elastic_fails_when_it_loses_a_replica(lab):
    job = lab.running(nodes=3, nproc_per_node=1)
    lab.cluster.lose(job.run, 1, "worker", index=2)
    assert lab.visit(job, times=4).phase == "failed"


def test_line_numbers_continue_after_those_of_the_previous_incarnation(lab, files):
    job = elastic(lab)
    before, host = identity(job, 2), identity(job, 0)
    apply.apply_batch(
        identity=before, batch=batch(1, log_item(2, 0, [(T, "one"), (T, "two")]), log_item(-1, 0, [(T, "hello")]))
    )
    running = item("rank", rank=2, local_rank=0, pid=7, state="running", at=T, world_rank=2, world_size=3)
    apply.apply_batch(identity=before, batch=batch(2, running))
    lab.cluster.lose(job.run, 1, "worker", index=2)
    job = lab.visit(job, times=3)
    rank = Rank.objects.get(job=job, rank=2)
    assert (rank.state, rank.pid, rank.world_size, rank.lines) == ("waiting", None, None, 2)
    after = replace(before, incarnation=1)
    apply.apply_batch(
        identity=after, batch=batch(1, log_item(2, 0, [(T + 9, "three")]), log_item(-1, 0, [(T + 9, "again")]))
    )
    apply.apply_batch(identity=after, batch=batch(2, log_item(2, 1, [(T + 9, "four")])))
    assert [line.text for line in page(job, 2)] == ["one", "two", "three", "four"]
    assert [line.text for line in page(job, -1)] == ["hello", "again"]
    assert apply.apply_batch(identity=host, batch=batch(1)) == (1, [])  # agents of other replicas are not affected


def test_a_late_batch_of_the_previous_incarnation_is_refused(lab, files):
    job = elastic(lab)
    before = identity(job, 2)
    late = batch(1, log_item(2, 0, [(T, "late")]))
    lab.cluster.lose(job.run, 1, "worker", index=2)
    lab.visit(job, times=3)
    with pytest.raises(NotAllowed):
        apply.apply_batch(identity=before, batch=late)
    assert page(job, 2) == []


def test_a_batch_parsed_before_the_replacement_and_written_after_it_is_dropped(lab, files):
    """The previous agent had sent nothing yet, so its first sequence number equals that of the new agent."""
    job = elastic(lab)
    row = replica_rows.find(identity(job, 2))
    said = translate.read(batch(1, log_item(2, 0, [(T, "late")])), baseline=row.baseline(frozenset()), now=T)
    lab.cluster.lose(job.run, 1, "worker", index=2)
    lab.visit(job, times=3)
    assert not replica_rows.write(row, seq=1, changes=said, path="")
    assert Replica.objects.get(job=job, index=2).batch_seq == 0


def test_a_token_names_its_incarnation_and_older_tokens_are_still_read():
    new = AgentIdentity(1, "1-abc", 2, "worker", 3, 4)
    assert agent_tokens.read(agent_tokens.issue(new)) == new
    old = signing.dumps([1, "1-abc", 2, "worker", 3], salt="muster.agent")
    assert agent_tokens.read(old) == replace(new, incarnation=0)


def test_ranks_of_a_lost_replica_do_not_stay_running(lab):
    job = elastic(lab)
    Replica.objects.filter(job=job, index=2).update(
        incarnation=replacement.MOST, replaced_at=timezone.now(), applied_at=timezone.now()
    )  # it was replaced as often as is allowed
    lab.cluster.apply(plan_of(job, 1))
    lab.visit(job)
    running = item("rank", rank=2, local_rank=0, pid=7, state="running", at=T)
    apply.apply_batch(identity=replace(identity(job, 2), incarnation=replacement.MOST), batch=batch(1, running))
    lab.cluster.finish(job.run, 1, "worker", index=2, exit_code=1)
    job = lab.visit(job, times=2)
    assert (job.phase, rows(job)[2]) == ("running", (2, replacement.MOST, "failed"))
    rank = Rank.objects.get(job=job, rank=2)
    assert (rank.state, rank.is_stopped) == ("failed", True)


def test_a_refused_replacement_does_not_end_the_other_replicas(lab):
    job = elastic(lab)

    def refuse(plan):
        raise Refused("exceeded quota")

    lab.cluster.lose(job.run, 1, "worker", index=2)
    apply, lab.cluster.apply = lab.cluster.apply, refuse
    job = lab.visit(job, times=3)
    assert (job.phase, rows(job)[2]) == ("running", (2, 1, "pending"))
    lab.cluster.apply = apply
    assert rows(lab.visit(job, times=2))[2] == (2, 1, "running")


def page(job: Job, rank: int) -> list[reader.LogLine]:
    return reader.read(job=job, source=LogSource(rank), limit=100).lines
