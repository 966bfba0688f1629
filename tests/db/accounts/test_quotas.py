"""Flavors, cohorts and the quotas of teams through the API: who may set them, what is refused, and the audit."""

import pytest

from accounts.models import AuditEntry, Team
from queues.models import Cohort, Flavor, Queue, TeamQuota

pytestmark = pytest.mark.django_db
QUOTA = "/teams/nlp/quotas/slots"


@pytest.fixture
def admin(api, queue):
    using = api("admin")
    assert using.put("/flavors/slots", {"cluster": queue.cluster, "resource": "cpu"}).status_code == 200
    assert using.put("/cohorts/all", {}).status_code == 200
    return using


def test_platform_administrators_set_them_and_members_read_what_their_team_has(api, admin, queue):
    body = {"nominal": 8, "cohort": "all", "lending_limit": 2, "weight": 2, "reason": "new nodes"}
    made = admin.put(QUOTA, body)
    assert made.status_code == 200, made.text
    expected = {
        "flavor": "slots", "cohort": "all", "nominal": 8, "borrowing_limit": None, "lending_limit": 2, "weight": 2.0,
        "version": 1, "used": 0, "borrowed": 0, "lent": 0, "waiting": 0, "waiting_jobs": 0,
    }  # fmt: skip
    assert made.json() == expected
    assert api("owner").get("/teams/nlp/quotas").json()["results"] == [expected]
    assert api("owner").get("/flavors").json()["results"] == [
        {"name": "slots", "cluster": queue.cluster, "resource": "cpu", "gpus_per_node": 0, "node_selector": {}}
    ]
    assert api("owner").get("/cohorts").json()["results"] == [{"name": "all", "above": None}]
    for path in (QUOTA, "/flavors/other", "/cohorts/other"):
        assert api("boss").put(path, {"nominal": 8}).status_code in (403, 422)
        assert api("boss").delete(path).status_code == 403
    assert api("boss").put(QUOTA, {"nominal": 9}).status_code == 403
    assert not TeamQuota.objects.exclude(nominal=8).exists() and Cohort.objects.count() == Flavor.objects.count() == 1
    said = AuditEntry.objects.filter(act="quota.change").get()
    assert said.after == {
        "flavor": "slots", "nominal": 8, "cohort": "all", "lending_limit": 2, "weight": "2.0", "reason": "new nodes",
    }  # fmt: skip


def test_a_change_made_meanwhile_is_told(admin):
    admin.put(QUOTA, {"nominal": 8})
    assert admin.put(QUOTA, {"nominal": 9, "version": 1}).json()["version"] == 2
    late = admin.put(QUOTA, {"nominal": 7, "version": 1})
    assert late.status_code == 409 and "changed since version 1, to nominal 9" in late.text
    assert admin.put(QUOTA, {"nominal": 9}).json()["version"] == 2, "nothing was changed"


def test_a_queue_takes_its_slots_from_its_team(api, admin, queue):
    assert "has a quota of" in admin.patch("/queues/default", {"flavor": "slots"}).text
    admin.put(QUOTA, {"nominal": 10, "cohort": "all"})
    refused = api("boss").patch("/queues/default", {"flavor": "slots"})
    assert refused.status_code == 422 and "is set by platform administrators" in refused.text
    assert admin.patch("/queues/default", {"flavor": "slots"}).status_code == 200
    set_ = api("boss").patch("/queues/default", {"borrowing_limit": None, "preempts": True})
    assert set_.status_code == 200, set_.text
    assert (set_.json()["flavor"], set_.json()["borrowing_limit"], set_.json()["preempts"]) == ("slots", None, True)
    beyond = admin.patch("/queues/default", {"slots": 11})
    assert beyond.status_code == 422 and "at most 10 here" in beyond.text
    low = admin.put(QUOTA, {"nominal": 7})
    assert low.status_code == 422 and "less than the 8 that queues of team nlp have of it" in low.text
    assert api("boss").patch("/queues/default", {"flavor": None}).status_code == 422, "its slots would be lent twice"
    assert admin.patch("/queues/default", {"flavor": None}).json()["flavor"] is None
    assert admin.put(QUOTA, {"nominal": 7}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (QUOTA, {}, "must be given"),
        (QUOTA, {"nominal": -1}, "nominal"),
        (QUOTA, {"nominal": "512GB"}, "nominal"),
        (QUOTA, {"nominal": 0.5}, "nominal"),
        (QUOTA, {"nominal": 10**12}, "nominal"),
        (QUOTA, {"nominal": 1, "weight": 0}, "must be a number above 0"),
        (QUOTA, {"nominal": 1, "weight": "nan"}, "valid number"),
        (QUOTA, {"nominal": 1, "weight": "inf"}, "valid number"),
        (QUOTA, {"nominal": 1, "borrowing_limit": -1}, "borrowing_limit"),
        (QUOTA, {"nominal": 1, "cohort": "none"}, "is no cohort; known are all"),
        (QUOTA, {"nominal": 1, "gpus": 3}, "cannot be set; these can"),
        ("/teams/nlp/quotas/h100", {"nominal": 1}, "is no flavor; known are slots"),
        ("/flavors/h100", {"cluster": "moon"}, "must be one of"),
        ("/flavors/h100", {"cluster": "local", "resource": "tpu"}, "tpu"),
        ("/flavors/h100", {"cluster": "local", "node_selector": "pool=h100"}, "node_selector"),
        ("/flavors/h100", {"cluster": "local", "node_selector": {"a pool": "h100"}}, "is no label with a value"),
        ("/flavors/h100", {"cluster": "local", "node_selector": {"pool": "h 100"}}, "node_selector.pool"),
        ("/flavors/h100", {"cluster": "local", "node_selector": {f"pool-{n}": "" for n in range(11)}}, "at most 10 labels"),
        ("/cohorts/all", {"above": "all"}, "lies in cohort all itself"),
        ("/cohorts/all", {"above": "moon"}, "is no cohort; known are all"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_way_out(admin, path, body, said):
    answer = admin.put(path, body)
    assert answer.status_code == 422 and said in answer.text, answer.text
    assert not TeamQuota.objects.exists()


def test_pools_of_nodes_of_one_cluster_are_flavors_of_their_own(admin, queue):
    sent = {"cluster": queue.cluster, "gpus_per_node": 8}
    pools = {name: {**sent, "node_selector": {"example.com/pool": name}} for name in ("h100", "a100")}
    for name, body in pools.items():
        made = admin.put(f"/flavors/{name}", body)
        assert made.status_code == 200 and made.json()["node_selector"] == {"example.com/pool": name}
    assert admin.put("/flavors/h100", pools["h100"]).status_code == 200, "the same again"
    twin = admin.put("/flavors/twin", pools["h100"])
    assert twin.status_code == 409 and "flavor h100 is the same already" in twin.text
    changed = admin.put("/flavors/h100", pools["a100"])
    assert changed.status_code == 409
    assert AuditEntry.objects.filter(act="flavor.make", after__node_selector="example.com/pool=h100").count() == 1


def test_a_flavor_is_one_kind_of_devices_and_cannot_be_changed(admin, queue):
    again = admin.put("/flavors/slots", {"cluster": queue.cluster, "resource": "cpu"})
    assert again.status_code == 200, "the same again is no error"
    other = admin.put("/flavors/slots", {"cluster": queue.cluster, "resource": "gpu"})
    assert other.status_code == 409 and "cannot be changed, so choose another name" in other.text
    twin = admin.put("/flavors/twin", {"cluster": queue.cluster, "resource": "cpu"})
    assert twin.status_code == 409 and "flavor slots is the same already" in twin.text
    wrong = admin.put("/flavors/gpus", {"cluster": queue.cluster, "resource": "gpu"})
    admin.put("/teams/nlp/quotas/gpus", {"nominal": 8})
    unlike = admin.patch("/queues/default", {"flavor": "gpus"})
    assert (
        wrong.status_code == 200
        and unlike.status_code == 422
        and "is of resource gpu, and the queue has cpu" in unlike.text
    )


def test_what_is_in_use_is_not_removed(admin, queue):
    admin.put(QUOTA, {"nominal": 8, "cohort": "all"})
    admin.put("/cohorts/part", {"above": "all"})
    admin.patch("/queues/default", {"flavor": "slots"})
    assert "queue default, the quota of team nlp" in admin.delete("/flavors/slots").text
    assert "has cohort part, team nlp in it; move them first" in admin.delete("/cohorts/all").text
    assert admin.delete(QUOTA).status_code == 204
    admin.patch("/queues/default", {"flavor": None})
    for path in ("/cohorts/part", "/cohorts/all", "/flavors/slots"):
        assert admin.delete(path).status_code == 204
    assert not Flavor.objects.exists() and not Cohort.objects.exists()
    assert {"flavor.make", "flavor.remove", "cohort.change", "cohort.remove", "quota.change", "quota.remove"} <= set(
        AuditEntry.objects.values_list("act", flat=True)
    )


def test_a_cohort_lies_in_no_circle(admin):
    for name, above in (("a", "all"), ("b", "a")):
        assert admin.put(f"/cohorts/{name}", {"above": above}).status_code == 200
    refused = admin.put("/cohorts/all", {"above": "b"})
    assert refused.status_code == 422 and "lies in cohort all itself (b in a in all)" in refused.text


def test_another_teams_quota_is_not_shown(api, admin):
    Team.objects.create(name="secret")
    assert api("owner").get("/teams/secret/quotas").status_code == 404
    assert Queue.objects.filter(flavor__isnull=False).count() == 0
