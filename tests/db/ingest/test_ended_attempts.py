"""What an agent may do after its attempt has ended: deliver what it had for a while, but change no final state."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.ingest import apply
from jobs.ingest.agent_tokens import issue
from jobs.logs import reader
from jobs.models import Job, Rank, Replica
from tests.db.ingest.test_agent_door import body
from tests.support.builders import batch, deliver, identity, item, log_item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]
T = float(int(time.time()) - 600)


def rank(number: int, state: str, **more):
    return item("rank", rank=number, local_rank=number % 2, state=state, at=T, **more)


def send(job, seq: int, *items, index: int = 0) -> None:
    assert apply.apply_batch(identity=identity(job, index), batch=batch(seq, *items))[0] == seq


def states(job) -> list[tuple[str, int | None]]:
    return list(Rank.objects.filter(job=job, replica__index=0).values_list("state", "exit_code"))


def test_a_final_state_is_not_overwritten_by_later_reports(lab):
    job = lab.running()
    send(job, 1, rank(0, "running", restart=0), rank(0, "failed", restart=0, exit_code=3))
    send(job, 2, rank(0, "succeeded", restart=0, exit_code=0))
    send(job, 3, rank(0, "running", restart=0), rank(0, "succeeded", restart=0, exit_code=0))
    assert states(job)[0] == ("failed", 3)


def test_a_restarted_rank_may_end_again(lab):
    job = lab.running()
    send(
        job, 1, rank(0, "running", restart=0), rank(0, "failed", restart=0, exit_code=3), rank(0, "running", restart=1)
    )
    assert states(job)[0] == ("running", None)
    send(job, 2, rank(0, "failed", restart=0, exit_code=9), rank(0, "succeeded", restart=1, exit_code=0))
    assert states(job)[0] == ("succeeded", 0)


def test_reports_of_an_older_agent_without_a_restart_count_are_accepted(lab):
    job = lab.running()
    send(job, 1, rank(0, "running"), rank(0, "failed", exit_code=3))
    send(job, 2, rank(0, "succeeded", exit_code=0))
    assert states(job)[0] == ("failed", 3)
    send(job, 3, rank(0, "running"))
    send(job, 4, rank(0, "succeeded", exit_code=0))
    assert states(job)[0] == ("succeeded", 0)
    assert Rank.objects.get(job=job, rank=0).restarts == 1


def test_after_the_attempt_late_lines_and_missing_ends_are_accepted_but_final_states_stay(lab):
    job = lab.running()
    send(job, 1, rank(0, "running"), rank(0, "failed", exit_code=1))
    lab.finish(job, 1, 1)
    assert job.is_finished
    forged = [rank(0, "running", restart=7), rank(0, "succeeded", restart=7, exit_code=0), rank(1, "running")]
    send(job, 2, *forged, log_item(0, 0, [(T, "late")]))
    assert states(job) == [("failed", 1), ("waiting", None)]
    send(job, 3, rank(1, "failed", exit_code=4))
    assert states(job) == [("failed", 1), ("failed", 4)]
    assert [line.text for line in reader.read(job=job).lines] == ["late"]


def test_an_attempt_that_ends_while_a_batch_is_parsed_counts_as_ended(lab):
    """The batch was parsed against an earlier version of the row; what the reconciler wrote since then counts."""
    from jobs.ingest import replica_rows, translate

    job = lab.running()
    send(job, 1, rank(0, "running"))
    row = replica_rows.find(identity(job))
    said = translate.read(batch(2, rank(0, "running", restart=5)), baseline=row.baseline(frozenset()), now=time.time())
    lab.finish(job, 1, 1)
    assert replica_rows.write(row, seq=2, changes=said, path="")
    assert Rank.objects.get(job=job, rank=0).state == "failed"


@pytest.mark.parametrize("how", ["finished", "retried", "from before"])
def test_a_token_expires_a_drain_time_after_its_attempt(client, lab, settings, how):
    job = lab.running(max_retries=1 if how == "retried" else 0)
    token, ended = issue(identity(job)), job.attempt
    headers = {"Authorization": f"Bearer {token}"}
    lab.finish(job, 1, 1)
    lab.visit(job, times=2)
    assert (job.attempt > ended) == (how == "retried")

    def answers(seq: int) -> list[int]:
        sent = deliver(token, body(log_item(0, seq - 1, [(T, "x")]), seq=seq))
        return [sent.status, client.get("/agent/v1/workspace", headers=headers).status_code]

    code = 403 if job.is_finished else 204
    assert answers(1) == [200, code]
    past = timezone.now() - timedelta(seconds=settings.MUSTER_AGENT_DRAIN_SECONDS + 1)
    if how == "from before":  # rows of the previous release do not record when an attempt was closed
        Replica.objects.filter(job=job).update(closed_at=None)
        Job.objects.filter(pk=job.pk).update(finished_at=past)
    else:
        Replica.objects.filter(job=job, attempt=ended).update(closed_at=past)
    assert answers(2) == [403, 403]
    assert len(reader.read(job=job, attempt=ended).lines) == 1


def test_the_next_attempt_of_the_same_job_is_accepted(lab):
    job = lab.running(max_retries=1)
    lab.finish(job, 1, 1)
    lab.visit(job, times=2)
    assert job.attempt == 2
    Replica.objects.filter(job=job, attempt=1).update(closed_at=timezone.now() - timedelta(days=1))
    send(job, 1, rank(0, "running"))
    assert Rank.objects.get(job=job, attempt=2, rank=0).state == "running"
