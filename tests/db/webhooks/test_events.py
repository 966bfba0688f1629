"""Which steps of a job are told, once each, and what is said: through the real store and a cluster in memory."""

import json

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.models import Team
from common.errors import InvalidSpec
from jobs import services as jobs
from jobs.control import store
from jobs.models import Delivery, JobEvent, Rank
from jobs.scheduling.scheduler import schedule
from jobs.webhooks import services
from tests.db.webhooks.conftest import told
from tests.support.seed import failed

pytestmark = pytest.mark.django_db
HIDDEN = "hf_4711-do-not-tell"
KEY = "key-of-the-environment"
VALUE = "value-of-an-environment-variable"


def test_start_and_success_are_told_once_each(lab, hook):
    hook()
    job = lab.running()
    assert told(job) == [("started", 1)]
    lab.finish(job, 0, 0)
    lab.visit(job, times=3)
    assert told(job) == [("started", 1), ("succeeded", 1)]


def test_a_failed_attempt_is_told_as_a_retry_and_the_last_one_as_the_failure(lab, hook):
    hook()
    job = lab.running(max_retries=1)
    lab.finish(job, 3)
    lab.finish(job, 3)
    assert told(job) == [("started", 1), ("retrying", 1), ("started", 2), ("failed", 2)]
    retry, end = Delivery.objects.filter(event__in=["retrying", "failed"]).order_by("id")
    assert "worker-0 exited with code 3" in retry.payload["data"]["message"]
    assert end.payload["type"] == "job.failed" and end.payload["data"]["job"]["phase"] == "failed"


def test_a_retry_that_an_exit_code_rules_out_is_told_as_the_failure_alone(lab, hook):
    hook()
    job = lab.running(max_retries=1, never_retry_on=[3])
    Rank.objects.filter(job=job, rank=0).update(state="failed", exit_code=3, ended_at=timezone.now())
    lab.finish(job, 1)
    assert told(job) == [("started", 1), ("failed", 1)]


@pytest.mark.parametrize("phase", ["queued", "running"])
def test_a_cancelled_job_is_told(lab, hook, people, phase):
    hook()
    job = lab.submit() if phase == "queued" else lab.running()
    jobs.cancel(job=job, by=people.owner)
    lab.visit(job, times=4)
    assert told(job)[-1] == ("cancelled", job.attempt)
    assert len(told(job)) == (1 if phase == "queued" else 2)


def test_a_job_that_is_resumed_is_told_as_started_again_and_its_pause_is_no_event(lab, hook, people):
    hook()
    job = lab.running()
    jobs.suspend(job=job, by=people.owner)
    lab.visit(job, times=3)
    jobs.resume(job=job, by=people.owner)
    lab.visit(job)
    schedule()
    lab.visit(job, times=3)
    assert told(job) == [("started", 1), ("started", 2)]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (["start"], ["started", "started"]),
        (["end"], ["failed"]),
        (["failure"], ["retrying", "failed"]),
        (["end", "failure"], ["retrying", "failed"]),
    ],
)
def test_a_webhook_is_told_what_it_chose(lab, hook, events, expected):
    hook(events=events)
    job = lab.running(max_retries=1)
    lab.finish(job, 1)
    lab.finish(job, 1)
    assert [event for event, _ in told(job)] == expected


def test_a_webhook_of_chosen_jobs_is_told_only_of_jobs_that_name_it(lab, hook):
    hook("quiet", all_jobs=False)
    other = lab.running(nodes=1)
    named = lab.running(nodes=1, notify=["quiet"])
    assert (told(other), told(named)) == ([], [("started", 1)])
    assert named.spec["notify"] == ["quiet"] and "notify" not in other.spec


def test_a_name_that_no_webhook_of_the_team_has_is_refused_with_those_there_are(lab, hook):
    with pytest.raises(InvalidSpec, match="chat is not a webhook of team nlp; it has none; its administrators add one"):
        lab.submit(notify=["chat"])
    hook("pager")
    with pytest.raises(InvalidSpec, match="known are pager"):
        lab.submit(notify="chat")
    assert lab.submit(notify="pager, pager").spec["notify"] == ["pager"]


def test_a_webhook_that_is_switched_off_and_one_of_another_team_are_told_nothing(lab, hook, boss, people, receiver):
    services.change(webhook=hook(), by=boss, is_active=False)
    vision = Team.objects.get(name="vision")
    services.create(team=vision, by=people.stranger, name="theirs", url=receiver.url, events=["start"])
    assert told(lab.running()) == []
    with pytest.raises(InvalidSpec, match="known are chat"):
        lab.submit(notify=["theirs"])


def test_each_event_has_one_row_and_postgres_refuses_a_second(lab, hook):
    webhook = hook()
    job = lab.running()
    with pytest.raises(IntegrityError, match="delivery_once_per_event"), transaction.atomic():
        Delivery.objects.create(
            webhook=webhook, job=job, event="started", attempt=1, payload={}, next_try_at=timezone.now()
        )
    with pytest.raises(IntegrityError, match="delivery_is_due_or_settled"), transaction.atomic():
        Delivery.objects.update(delivered_at=timezone.now())


def test_the_payload_says_what_failed_first_and_where_to_look(lab, hook):
    hook(events=["failure"])
    job = failed(lab)
    data = Delivery.objects.get(job=job).payload["data"]
    assert data["failure"]["rank"] is not None and data["failure"]["headline"]
    assert data["failure"]["exit_code"] == 1
    assert data["job"] == {
        "id": job.pk, "name": job.name, "team": "nlp", "queue": "default", "user": "owner", "framework": "torchrun",
        "phase": "failed", "attempt": 1, "url": f"http://testserver/jobs/{job.pk}",
        **{name: data["job"][name] for name in ("created_at", "started_at", "finished_at")},
    }  # fmt: skip
    assert data["job"]["finished_at"].endswith("Z")


def test_no_payload_holds_a_secret_or_the_environment(lab, hook):
    """Also where the process itself printed them in the error that it failed with."""
    hook()
    printed = f"ValueError: token {HIDDEN}, {KEY}, password=hunter22 of <run>"
    lines = ["Traceback (most recent call last):", '  File "train.py", line 1, in <module>', printed]
    name = f"run-{KEY}"
    job = failed(lab, lines=lines, name=name, env={"DATA": VALUE, "API_KEY": KEY}, secrets={"HF": HIDDEN})
    payloads = [one.payload for one in Delivery.objects.filter(job=job)]
    headline = "rank 1: ValueError: token [removed], [removed], password=[removed] of <run>"
    assert [one["data"]["failure"] and one["data"]["failure"]["headline"] for one in payloads] == [headline, None]
    assert [one["data"]["job"]["name"] for one in payloads] == ["run-[removed]"] * 2
    for hidden in (HIDDEN, VALUE, KEY, "hunter22", "torchrun train.py"):
        assert hidden not in json.dumps(payloads)


def test_texts_stay_away_where_the_secrets_cannot_be_read_any_more(lab, hook, settings):
    """What cannot be read cannot be struck out."""
    job = lab.running(secrets={"HF": HIDDEN})
    hook()
    settings.SECRET_KEY = "another key of the server, without the old one"
    lab.finish(job, 1)
    data = Delivery.objects.get(job=job).payload["data"]
    assert data["job"]["name"] == f"job {job.pk}"
    assert data["failure"] is None and data["message"].startswith("not told: the job's secrets cannot be read")


def test_a_defect_in_telling_does_not_keep_a_job_from_its_next_phase(lab, hook, monkeypatch):
    """Neither one in Python nor a statement that Postgres refuses."""
    hook()
    monkeypatch.setattr(store.outbox, "WANTED", "SELECT nothing FROM nowhere WHERE %(team)s = 0")
    job = lab.running()
    assert (job.phase, told(job)) == ("running", [])
    monkeypatch.setattr(store.outbox, "deliveries", lambda *_, **__: 1 / 0)
    lab.finish(job, 0, 0)
    assert (job.phase, told(job)) == ("succeeded", [])
    assert JobEvent.objects.filter(job=job, phase="succeeded").exists()


def test_a_team_without_webhooks_costs_one_look_up_for_each_event(lab, django_assert_num_queries):
    job = lab.running()
    job.phase = "succeeded"
    event = store.outbox.event_of(job, before="stopping", reason="completed")
    with django_assert_num_queries(1):
        assert store.outbox.deliveries(job, event, now=timezone.now(), secrets=lambda: 1 / 0) == []
