"""Quota: who may change it, what is refused, the warnings, the audit, and that a change wakes the scheduler."""

import time

import pytest
from django.core.management import call_command
from redis import Redis

from accounts.models import AuditEntry
from jobs.scheduling.scheduler import schedule
from queues import services
from queues.models import Queue
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db


def heard(settings) -> bool:
    """Whether a scheduling task waits in the broker."""
    with Redis.from_url(settings.REDIS_URL) as redis:
        return any(b"jobs.schedule" in one for one in redis.lrange("celery", 0, -1))


def test_an_administrator_changes_the_quota_and_waiting_jobs_start(
    api, queue, lab, settings, django_capture_on_commit_callbacks
):
    services.set_ceiling(team=queue.team, resource="cpu", slots=12, by=None)
    lab.running(nodes=1, nproc_per_node=8)
    waiting = lab.submit(nodes=1, nproc_per_node=4)
    Redis.from_url(settings.REDIS_URL).delete("celery")
    with django_capture_on_commit_callbacks(execute=True) as rung:
        answer = api("boss").patch("/queues/default", {"slots": 12, "description": "for everyone"})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["slots"], body["used"], body["description"], body["notice"]) == (12, 8, "for everyone", "")
    assert rung  # both the doorbell and the forwarding of the audit entry run on commit
    end = time.monotonic() + PATIENCE_SECONDS
    while not heard(settings):
        assert time.monotonic() < end
        time.sleep(0.05)
    schedule()
    waiting.refresh_from_db()
    assert waiting.phase == "admitted"


def test_the_audit_entry_holds_the_values_before_and_after(api, queue):
    using = api("boss")
    using.patch("/queues/default", {"slots": 4, "is_open": False, "gpus_per_node": 0})
    using.patch("/queues/default", {"slots": 4})  # changes nothing, so no entry
    entry = AuditEntry.objects.get()
    assert (entry.act, entry.target_name, entry.team_name) == ("queue.change", "default", "nlp")
    assert (entry.before, entry.after) == ({"slots": 8, "is_open": True}, {"slots": 4, "is_open": False})


def test_lowering_the_quota_below_use_stops_no_job_and_warns(api, lab):
    job = lab.running(nodes=2, nproc_per_node=4)
    answer = api("boss").patch("/queues/default", {"slots": 2})
    assert (answer.status_code, answer.json()["used"]) == (200, 8)
    assert "8 CPU slots, 6 more than the quota; no job is stopped for that" in answer.json()["notice"]
    assert api("owner").get("/queues/default").json()["notice"] == answer.json()["notice"]
    assert lab.visit(job, times=2).phase == "running"


def test_a_closed_queue_admits_no_job(api, lab):
    assert api("boss").patch("/queues/default", {"is_open": False}).json()["is_open"] is False
    job = lab.submit()
    schedule()
    job.refresh_from_db()
    assert (job.phase, "is closed" in job.wait_reason) == ("queued", True)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"slots": 0}, "slots"), ({"slots": -1}, "slots"), ({"slots": 10**12}, "slots"), ({"slots": "many"}, "slots"),
        ({"slots": None}, "slots"), ({"gpus_per_node": -1}, "gpus_per_node"), ({"description": "x" * 201}, "description"),
        ({"is_open": "perhaps"}, "is_open"), ({"name": "other"}, "name"), ({"team": "vision"}, "team"),
        ({"cluster": "moon"}, "cluster"),
    ],
)  # fmt: skip
def test_an_invalid_change_names_the_field_and_changes_nothing(api, queue, body, field):
    answer = api("boss").patch("/queues/default", {"description": "new", **body})
    assert answer.status_code == 422
    assert f'"{field}"' in answer.text
    queue.refresh_from_db()
    assert (queue.nominal, queue.description) == (8, "")


NEW = {"name": "big", "team": "nlp", "cluster": "local", "slots": 16}


def test_a_platform_administrator_makes_a_queue(api, boss):
    assert api("boss").post("/queues", NEW).status_code == 403
    assert api("admin", scope="submit").post("/queues", NEW).status_code == 403
    made = api("admin").post("/queues", {**NEW, "resource": "gpu", "gpus_per_node": 8})
    assert made.status_code == 201, made.text
    assert (made.json()["team"], made.json()["resource"], made.json()["slots"]) == ("nlp", "gpu", 16)
    assert api("admin").post("/queues", NEW).status_code == 409
    assert AuditEntry.objects.get().after == {
        "slots": 16, "is_open": True, "policy": "backfill", "description": "", "gpus_per_node": 8,
        "flavor": None, "borrowing_limit": 0, "preempts": False, "drains": False, "highest_priority": None, "largest_job": None,
        "longest_seconds": None, "slots_per_user": None, "budget_hours": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"team": "nowhere"}, "team"), ({"cluster": "moon"}, "cluster"), ({"resource": "tpu"}, "resource"),
        ({"name": "a b"}, "name"), ({"slots": 0}, "slots"), ({"colour": "red"}, "colour"),
    ],
)  # fmt: skip
def test_an_invalid_new_queue_names_the_field(api, change, field):
    answer = api("admin").post("/queues", {**NEW, **change})
    assert answer.status_code == 422
    assert f'"{field}"' in answer.text
    assert Queue.objects.count() == 0


def test_the_management_command_is_audited_too(people):
    call_command("queue", "big", "--team", "speech", "--slots", "4")
    call_command("queue", "big", "--team", "speech", "--slots", "16")
    told = list(AuditEntry.objects.order_by("id").values_list("act", "actor_name", "target_name"))
    assert told == [("queue.make", "", "big"), ("ceiling.change", "", "speech"), ("queue.change", "", "big")]


def test_the_service_layer_validates_values_itself(people, queue):
    from common.errors import InvalidInput

    for values in ({"slots": True}, {"slots": "8"}, {"is_open": 1}, {"nominal": 3}, {"description": "a\0"}):
        with pytest.raises(InvalidInput):
            services.change(queue=queue, by=people.admin, **values)


def test_limits_are_set_by_rest_and_are_in_the_audit(api, queue):
    using = api("admin")
    said = using.patch("/queues/default", {"slots_per_user": 4, "budget_hours": 0, "reason": "for all"}).json()
    assert (said["slots_per_user"], said["budget_hours"], said["largest_job"]) == (4, 0, None)
    entry = AuditEntry.objects.latest("id")
    assert entry.before == {"slots_per_user": None, "budget_hours": None}
    assert entry.after == {"slots_per_user": 4, "budget_hours": 0, "reason": "for all"}
    assert using.patch("/queues/default", {"budget_hours": None}).json()["budget_hours"] is None
    refused = using.patch("/queues/default", {"slots_per_user": "0.5 GPU"})
    assert refused.status_code == 422 and '"slots_per_user"' in refused.text
