"""Elastic jobs in Postgres: asked for, dry run, and seen rank by rank."""

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
from jobs.models import Job, Rank, Replica
from tests.db.api.test_api import SENT, Api
from tests.support.builders import batch, identity, item, log_item

pytestmark = pytest.mark.django_db
T = float(int(time.time()) - 600)  # times are kept near to what the control plane saw


@pytest.fixture
def api(client, people) -> Api:
    return Api(client, Token.issue(people.owner, "test")[1])


def test_a_plan_and_a_job_tell_the_least_and_the_most(api, queue):
    asked = {**SENT, "command": ["torchrun", "--nnodes=1:2", "train.py"]}
    del asked["nodes"]
    plan = api.post("/plans", asked).json()
    assert plan["distribution"] == {"nodes": 2, "min_nodes": 1, "nproc_per_node": 2, "world_size": 4}
    assert plan["asked"] == {"cpu": 4}  # the whole of it: what may come back must have room
    job = api.post("/jobs", asked).json()
    assert (job["nodes"], job["min_nodes"]) == (2, 1)
    assert Job.objects.get().slots == 4


def test_a_contradiction_is_refused_at_its_field(api, queue):
    answer = api.post("/jobs", {**SENT, "min_nodes": 3})
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert (problem["field"], problem["value"]) == ("min_nodes", 3)


def test_a_rank_is_known_by_its_place_and_tells_what_torchrun_calls_it(api, lab):
    job = lab.running(min_nodes=1)
    running = item("rank", rank=3, local_rank=1, pid=7, state="running", at=T, world_rank=1, world_size=2)
    apply.apply_batch(identity=identity(job, 1), batch=batch(1, running))
    ranks = api.get(f"/jobs/{job.pk}/ranks").json()["results"]
    assert [(one["rank"], one["world_rank"], one["world_size"]) for one in ranks][2:] == [(2, None, None), (3, 1, 2)]


# -- replicas that go and come within the attempt


def rows(job: Job) -> list[tuple[int, int, str]]:
    return list(job.replicas.filter(attempt=job.attempt).values_list("index", "incarnation", "state"))


def elastic(lab, **sent) -> Job:
    return lab.running(**{"nodes": 3, "nproc_per_node": 1, "min_nodes": 2, **sent})


def test_a_lost_replica_comes_back_within_the_attempt_and_the_history_says_so(lab):
    job = elastic(lab)
    lab.cluster.lose(job.run, 1, "worker", 2)
    job = lab.visit(job, times=3)
    assert (job.phase, job.attempt, job.failures) == ("running", 1, 0)
    assert rows(job) == [(0, 0, "running"), (1, 0, "running"), (2, 1, "running")]
    event = job.events.get(kind="replaced")
    assert "worker-2 vanished" in event.message
    assert "1 of at most 10 times" in event.message
    job = lab.finish(job, 0, 0, 0)
    assert (job.phase, job.attempt) == ("succeeded", 1)


def test_a_replica_that_fails_comes_back_too(lab):
    job = elastic(lab)
    lab.cluster.finish(job.run, 1, "worker", 1, exit_code=7)
    job = lab.visit(job, times=3)
    assert rows(job)[1] == (1, 1, "running")
    assert "worker-1 exited with code 7" in job.events.get(kind="replaced").message


def test_a_place_is_given_anew_only_when_what_its_replica_said_is_read(lab):
    job = elastic(lab)
    lab.cluster.finish(job.run, 1, "worker", 1, exit_code=7)
    job = lab.visit(job, times=2, backfill_logs=lambda held, **_: False)
    assert (job.phase, rows(job)[1]) == ("running", (1, 0, "failed"))
    job = lab.visit(job, times=2, backfill_logs=lambda held, **_: True)
    assert rows(job)[1] == (1, 1, "running")


def test_one_on_a_silent_node_is_freed_before_it_comes_back(lab):
    job = elastic(lab)
    lab.cluster.silence(job.run, 1, "worker", 1, node="node-7")
    alive = [len(lab.cluster.alive(job.run))]
    for _ in range(3):
        job = lab.visit(job)
        alive.append(len(lab.cluster.alive(job.run)))
    assert max(alive) == 3  # never more than its quota
    assert rows(job)[1] == (1, 1, "running")


def test_below_the_minimum_the_attempt_ends_and_says_whose_end_it_was(lab):
    job = elastic(lab)
    for index in (1, 2):
        lab.cluster.finish(job.run, 1, "worker", index, exit_code=3)
    job = lab.visit(job, times=4)
    assert job.phase == "failed"
    assert job.message == "worker-1 exited with code 3; 1 of at least 2 replicas are left"
    assert not job.events.filter(kind="replaced").exists()


def test_the_end_of_the_first_one_ends_the_attempt_and_a_retry_begins_anew(lab):
    job = elastic(lab, max_retries=1)
    lab.cluster.lose(job.run, 1, "worker", 1)
    job = lab.visit(job, times=3)
    lab.cluster.lose(job.run, 1, "worker", 0)
    job = lab.visit(job, times=6)
    assert (job.attempt, job.phase, job.failures) == (2, "running", 1)
    assert rows(job) == [(0, 0, "running"), (1, 0, "running"), (2, 0, "running")]
    assert any("all others met there" in event.message for event in job.events.all())


def test_a_job_that_is_not_elastic_ends_as_ever(lab):
    job = lab.running(nodes=3, nproc_per_node=1)
    lab.cluster.lose(job.run, 1, "worker", 2)
    assert lab.visit(job, times=4).phase == "failed"


def test_lines_go_on_where_those_of_the_one_before_ended(lab, files):
    job = elastic(lab)
    before, host = identity(job, 2), identity(job, 0)
    apply.apply_batch(
        identity=before, batch=batch(1, log_item(2, 0, [(T, "one"), (T, "two")]), log_item(-1, 0, [(T, "hello")]))
    )
    running = item("rank", rank=2, local_rank=0, pid=7, state="running", at=T, world_rank=2, world_size=3)
    apply.apply_batch(identity=before, batch=batch(2, running))
    lab.cluster.lose(job.run, 1, "worker", 2)
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
    assert apply.apply_batch(identity=host, batch=batch(1)) == (1, [])  # the others notice nothing


def test_nothing_late_of_the_agent_before_counts_as_the_new_ones(lab, files):
    job = elastic(lab)
    before = identity(job, 2)
    late = batch(1, log_item(2, 0, [(T, "late")]))
    lab.cluster.lose(job.run, 1, "worker", 2)
    lab.visit(job, times=3)
    with pytest.raises(NotAllowed):
        apply.apply_batch(identity=before, batch=late)
    assert page(job, 2) == []


def test_a_batch_that_was_read_before_and_is_written_after_the_change_writes_nothing(lab, files):
    """The agent before had sent nothing yet: its first number is the new one's first number too."""
    job = elastic(lab)
    row = replica_rows.find(identity(job, 2))
    said = translate.read(batch(1, log_item(2, 0, [(T, "late")])), baseline=row.baseline(frozenset()), now=T)
    lab.cluster.lose(job.run, 1, "worker", 2)
    lab.visit(job, times=3)
    assert not replica_rows.write(row, seq=1, changes=said, path="")
    assert Replica.objects.get(job=job, index=2).batch_seq == 0


def test_a_token_names_its_incarnation_and_older_tokens_are_read():
    new = AgentIdentity(1, "1-abc", 2, "worker", 3, 4)
    assert agent_tokens.read(agent_tokens.issue(new)) == new
    old = signing.dumps([1, "1-abc", 2, "worker", 3], salt="muster.agent")
    assert agent_tokens.read(old) == replace(new, incarnation=0)


def test_ranks_of_a_lost_replica_do_not_run_on_in_the_table(lab):
    job = elastic(lab)
    Replica.objects.filter(job=job, index=2).update(
        incarnation=replacement.MOST, replaced_at=timezone.now(), applied_at=timezone.now()
    )  # it came back as often as it may
    lab.cluster.apply(plan_of(job, 1))
    lab.visit(job)
    running = item("rank", rank=2, local_rank=0, pid=7, state="running", at=T)
    apply.apply_batch(identity=replace(identity(job, 2), incarnation=replacement.MOST), batch=batch(1, running))
    lab.cluster.finish(job.run, 1, "worker", 2, exit_code=1)
    job = lab.visit(job, times=2)
    assert (job.phase, rows(job)[2]) == ("running", (2, replacement.MOST, "failed"))
    rank = Rank.objects.get(job=job, rank=2)
    assert (rank.state, rank.is_stopped) == ("failed", True)


def test_a_cluster_that_refuses_a_replica_does_not_end_the_others(lab):
    job = elastic(lab)

    def refuse(plan):
        raise Refused("exceeded quota")

    lab.cluster.lose(job.run, 1, "worker", 2)
    apply, lab.cluster.apply = lab.cluster.apply, refuse
    job = lab.visit(job, times=3)
    assert (job.phase, rows(job)[2]) == ("running", (2, 1, "pending"))
    lab.cluster.apply = apply
    assert rows(lab.visit(job, times=2))[2] == (2, 1, "running")


def page(job: Job, rank: int) -> list[reader.LogLine]:
    return reader.read(job=job, rank=rank, limit=100).lines
