"""Who may make, change and see webhooks, by services and API; what is never returned; what the audit keeps."""

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import AuditEntry, Token
from jobs.models import Delivery, Webhook
from jobs.webhooks import services
from tests.db.accounts.conftest import Api

pytestmark = pytest.mark.django_db
PATH = "/teams/nlp/webhooks"
ROLES = ("boss", "owner", "viewer", "stranger", "root")


@pytest.fixture
def api(client, people, boss):
    """`api("viewer")` sends a token of that user."""

    def of(name: str, *, scope: str = "manage") -> Api:
        user = boss if name == "boss" else {one.username: one for one in vars(people).values()}[name]
        return Api(client, Token.issue(user, "test", scope=scope)[1])

    return of


@pytest.fixture
def sent(receiver):
    return {"name": "chat", "url": receiver.url, "events": ["start", "end"]}


def statuses(api, act) -> list[int]:
    return [act(api(name)).status_code for name in ROLES]


def test_an_administrator_makes_a_webhook_and_sees_its_secret_once(api, sent, receiver, deliver):
    made = api("boss").post(PATH, sent)
    assert (made.status_code, made["Cache-Control"]) == (201, "no-store")
    secret, host = made.json()["secret"], made.json()["host"]
    assert secret.startswith("whsec_") and host == f"127.0.0.1:{receiver.port}"
    assert {**api("boss").get(f"{PATH}/chat").json(), "secret": secret} == made.json()
    assert api("boss").post(f"{PATH}/chat/test").status_code == 202
    deliver()
    assert receiver.got[0].is_signed_with(secret) and receiver.got[0].json["type"] == "ping"


def test_what_each_role_may_do(api, hook, lab, sent):
    hook("there")
    lab.running()
    row = Delivery.objects.get()
    allowed = {"boss": True, "root": True}

    def manage(ok: int) -> list[int]:
        return [ok if allowed.get(name) else 404 if name == "stranger" else 403 for name in ROLES]

    assert statuses(api, lambda one: one.get(PATH)) == [200, 200, 200, 404, 200]
    assert statuses(api, lambda one: one.get(f"{PATH}/there")) == [200, 200, 200, 404, 200]
    assert statuses(api, lambda one: one.get(f"{PATH}/there/deliveries")) == [200, 200, 200, 404, 200]
    assert statuses(api, lambda one: one.patch(f"{PATH}/there", {"all_jobs": False})) == manage(200)
    assert statuses(api, lambda one: one.post(f"{PATH}/there/rotate")) == manage(200)
    assert statuses(api, lambda one: one.post(f"{PATH}/there/test")) == manage(202)
    assert statuses(api, lambda one: one.post(f"{PATH}/there/deliveries/{row.pk}/again")) == manage(202)
    made = statuses(api, lambda one: one.post(PATH, {**sent, "name": f"n{Webhook.objects.count()}"}))
    assert made == manage(201)
    assert api("owner").delete(f"{PATH}/there").status_code == 403
    assert api("stranger").delete(f"{PATH}/there").status_code == 404
    assert api("boss", scope="submit").delete(f"{PATH}/there").status_code == 403
    assert api("boss").delete(f"{PATH}/there").status_code == 204
    assert api("boss").get(f"{PATH}/there").status_code == 404


def test_url_and_secret_are_in_no_answer_no_page_no_audit_and_no_column(api, hook, as_, boss, lab, deliver):
    hook()
    services.rotate(webhook=Webhook.objects.get(), by=boss)
    lab.running()
    deliver()
    browser = as_(boss)
    shown = [
        api("boss").get(PATH).text,
        api("boss").get(f"{PATH}/chat").text,
        api("boss").get(f"{PATH}/chat/deliveries").text,
        browser.get(PATH).text,
        browser.get(f"{PATH}/chat").text,
        json.dumps(list(AuditEntry.objects.values()), default=str),
        json.dumps(list(Webhook.objects.values()), default=str),
        json.dumps(list(Delivery.objects.values()), default=str),
    ]
    for text in shown:
        assert "path-secret" not in text and hook.secrets["chat"] not in text and "whsec_" not in text


def test_the_history_says_what_became_of_each_delivery(api, hook, lab, receiver, deliver):
    hook()
    job = lab.running()
    receiver.statuses = [500]
    deliver()
    (row,) = api("viewer").get(f"{PATH}/chat/deliveries").json()["results"]
    assert row["message_id"] == receiver.got[0].id
    told = {"event": "started", "job": job.pk, "attempt": 1, "state": "waiting", "tries": 1, "status_code": 500}
    assert told.items() <= row.items() and row["error"] == "answered 500" and row["next_try_at"]
    again = api("boss").post(f"{PATH}/chat/deliveries/{row['id']}/again").json()
    assert (again["state"], again["tries"], again["error"]) == ("waiting", 0, "")
    deliver()
    assert api("viewer").get(f"{PATH}/chat/deliveries").json()["results"][0]["state"] == "delivered"


def test_the_history_is_paged_with_a_fixed_number_of_queries(api, hook, django_assert_max_num_queries):
    webhook = hook()
    now = timezone.now()
    rows = [Delivery(webhook=webhook, event="ping", payload={}, gave_up_at=now) for _ in range(60)]
    Delivery.objects.bulk_create(rows)
    using = api("viewer")
    with django_assert_max_num_queries(6):
        page = using.get(f"{PATH}/chat/deliveries").json()
    assert len(page["results"]) == 50
    following = using.client.get(page["next"], headers=using.headers).json()
    assert len(following["results"]) == 10 and following["next"] is None


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"name": "Not A Name"}, "name", "does not match"),
        ({"events": []}, "events", "empty"),
        ({"events": ["sometimes"]}, "events.0", "not a valid choice"),
        ({"format": "xml"}, "format", "not a valid choice"),
        ({"url": "https://10.0.0.1/secret"}, "url", "10.0.0.1, which is not a public address"),
        ({"url": "http://user:pw@example.com/"}, "url", "holds a user name or password"),
        ({"secret": "mine"}, "secret", "is not a known field"),
    ],
)
def test_a_refusal_names_field_and_remedy(api, sent, change, field, words):
    answer = api("boss").post(PATH, {**sent, **change})
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert problem["field"] == field and words in problem["message"]
    assert "secret" not in problem["message"] or field == "secret"
    assert Webhook.objects.count() == 0


def test_names_are_unique_in_a_team_and_their_number_is_bounded(api, sent, people, team, receiver, monkeypatch):
    assert api("boss").post(PATH, sent).status_code == 201
    assert "choose another name" in api("boss").post(PATH, sent).json()["detail"]
    assert api("root").post("/teams/vision/webhooks", sent).status_code == 201
    monkeypatch.setattr(services, "MOST", 1)
    full = api("boss").post(PATH, {**sent, "name": "more"})
    assert (full.status_code, "remove one first" in full.json()["detail"]) == (409, True)


def test_every_change_is_in_the_audit(api, sent, receiver):
    using = api("boss")
    using.post(PATH, sent)
    using.patch(f"{PATH}/chat", {"events": ["failure"], "url": f"{receiver.url}/other"})
    using.post(f"{PATH}/chat/rotate")
    test = using.post(f"{PATH}/chat/test").json()
    using.post(f"{PATH}/chat/deliveries/{test['id']}/again")
    using.delete(f"{PATH}/chat")
    entries = list(AuditEntry.objects.order_by("id").values_list("act", "target_name", "target_kind"))
    acts = ("make", "change", "rotate", "test", "repeat", "remove")
    assert entries == [(f"webhook.{act}", "chat", "webhook") for act in acts]
    change = AuditEntry.objects.get(act="webhook.change")
    assert change.before == {"events": ["end", "start"]}
    assert change.after == {"events": ["failure"], "address": "changed"}


def test_a_webhook_that_is_off_is_neither_tested_nor_repeated(api, hook, lab):
    hook()
    lab.running()
    row = Delivery.objects.get()
    using = api("boss")
    assert using.patch(f"{PATH}/chat", {"is_active": False}).json()["is_active"] is False
    for path in ("test", f"deliveries/{row.pk}/again"):
        answer = using.post(f"{PATH}/chat/{path}")
        assert (answer.status_code, "switch it on first" in answer.json()["detail"]) == (409, True)


def test_the_older_secret_is_left_out_where_it_cannot_be_read(hook, boss, settings, lab, receiver, deliver):
    """After a change of the server's key, a rotation and a new URL are enough."""
    webhook = hook()
    settings.SECRET_KEY = "another key of the server, without the old one"
    webhook, secret = services.rotate(webhook=webhook, by=boss)
    services.change(webhook=webhook, by=boss, url=receiver.url)
    assert webhook.old_secret_until is None
    lab.running()
    deliver()
    assert receiver.got[0].is_signed_with(secret)


def test_removing_a_webhook_removes_its_history_and_jobs_that_name_it_go_on(hook, boss, lab):
    webhook = hook(all_jobs=False)
    job = lab.running(notify=["chat"])
    services.remove(webhook=webhook, by=boss)
    assert Delivery.objects.count() == 0
    assert lab.finish(job, 0, 0).phase == "succeeded"


def test_a_job_shows_the_webhooks_that_it_names(api, hook, lab):
    hook("pager", all_jobs=False)
    job = lab.running(notify=["pager"])
    assert api("viewer").get(f"/jobs/{job.pk}").json()["notify"] == ["pager"]
    body = {"queue": "default", "command": ["true"], "notify": ["paper"]}
    refused = api("owner").post("/jobs", body)
    (problem,) = refused.json()["errors"]
    assert (refused.status_code, problem["field"], problem["value"]) == (422, "notify", "paper")
    assert "known are pager; its administrators add one at /teams/nlp/webhooks" in problem["message"]


# ---- pages


def test_the_page_explains_itself_where_there_is_none(as_, people, boss):
    assert "Make one with the form on this page" in as_(boss).get(PATH).text
    page = as_(people.viewer).get(PATH).text
    assert "Administrators of the team can make one." in page and "<form" not in page.partition("<main")[2]
    assert f'href="{PATH}"' in as_(people.viewer).get("/teams/nlp").text


def test_a_webhook_is_made_tested_rotated_switched_and_removed_in_the_browser(as_, boss, receiver, deliver):
    browser = as_(boss)
    asked = {"name": "chat", "url": receiver.url, "format": "json", "events": ["end"], "range": "named"}
    page = browser.post(PATH, asked)
    secret = page.context["secret"]
    assert page.status_code == 200 and secret in page.text
    assert not Webhook.objects.get().all_jobs
    one = f"{PATH}/chat"
    assert "A test is on its way" in browser.post(one, {"act": "test"}, follow=True).text
    deliver()
    assert receiver.got[0].is_signed_with(secret)
    page = browser.get(one).text
    assert "Delivered" in page and "Ping" in page and secret not in page
    rotated = browser.post(one, {"act": "rotate"})
    assert rotated.context["secret"] in rotated.text and rotated.context["secret"] != secret
    again = browser.post(one, {"act": "again", "delivery": Delivery.objects.get().pk}, follow=True)
    assert "It is sent again" in again.text
    changed = {"act": "change", "format": "slack", "events": ["start", "failure"], "range": "every", "url": ""}
    assert "was changed" in browser.post(one, changed, follow=True).text
    row = Webhook.objects.get()
    assert (row.format, row.events, row.all_jobs) == ("slack", ["failure", "start"], True)
    assert "switched off" in browser.post(one, {"act": "off"}, follow=True).text
    assert "switch it on first" in browser.post(one, {"act": "test"}, follow=True).text
    assert "switched on" in browser.post(one, {"act": "on"}, follow=True).text
    assert "were removed" in browser.post(one, {"act": "remove"}, follow=True).text
    assert Webhook.objects.count() == 0


def test_a_wrong_form_says_what_is_wrong_at_its_field_and_shows_no_url_again(as_, boss):
    asked = {"name": "", "url": "https://10.0.0.1/path-secret", "format": "json", "range": "every"}
    page = as_(boss).post(PATH, asked)
    assert page.status_code == 422
    for field in ("name", "url", "events"):
        assert f'id="error-{field}"' in page.text, field
    assert "path-secret" not in page.text and "MUSTER_WEBHOOK_NETWORKS" in page.text


def test_an_unknown_act_and_a_deleted_delivery_are_not_found(as_, boss, hook):
    hook()
    browser = as_(boss)
    for data in ({}, {"act": "dance"}, {"act": "again"}, {"act": "again", "delivery": "7"}):
        assert browser.post(f"{PATH}/chat", data).status_code == 404


def test_the_history_page_shows_every_state_and_is_paged(as_, people, hook, lab, receiver, deliver):
    webhook = hook()
    job = lab.running()
    receiver.statuses = [503]
    deliver()
    now = timezone.now()
    Delivery.objects.bulk_create(
        Delivery(webhook=webhook, event="ping", payload={}, gave_up_at=now - timedelta(seconds=n)) for n in range(55)
    )
    newest = as_(people.viewer).get(f"{PATH}/chat")
    assert newest.text.count("Given up") == 50 and "Send again" not in newest.text
    older = as_(people.viewer).get(f"{PATH}/chat", {"before": newest.context["older"]}).text
    assert "Waits" in older and "Answered 503" in older and f'href="/jobs/{job.pk}"' in older


def test_a_jobs_history_says_which_webhooks_were_told(as_, people, hook, lab, receiver, deliver):
    job = lab.running()
    viewer = as_(people.viewer)
    assert "<h3>Webhooks</h3>" not in viewer.get(f"/jobs/{job.pk}").text
    hook()
    receiver.statuses = [410]
    lab.finish(job, 0, 0)
    deliver()
    page = viewer.get(f"/jobs/{job.pk}").text
    assert f'<a href="{PATH}/chat">chat</a>: succeeded, <b>given up</b>' in page and "answered 410" in page


def test_the_form_of_a_job_names_webhooks_and_says_which_there_are(as_, people, hook, queue):
    hook("pager", all_jobs=False)
    browser = as_(people.owner)
    sent = {"queue": queue.pk, "code": "none", "command": "true", "nodes": 1, "nproc_per_node": 1}
    wrong = browser.post("/jobs/new", {**sent, "idempotency_key": "a", "notify": "paper"})
    assert 'id="error-notify"' in wrong.text and "known are pager" in wrong.text
    assert browser.post("/jobs/new", {**sent, "idempotency_key": "b", "notify": "pager"}).status_code == 302
    job = people.owner.jobs.get()
    assert job.spec["notify"] == ["pager"]
    assert browser.get(f"/jobs/new?from={job.pk}").context["form"]["notify"].value() == "pager"
