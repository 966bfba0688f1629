"""Requests for more quota: who asks, who decides, what granting changes, and what is said where it cannot be."""

import pytest

from accounts.models import AuditEntry, Membership, Role, Token
from common.errors import Conflict, InvalidInput, NotAllowed
from queues import cohorts, requests, services
from queues.models import Queue, QuotaRequest, TeamQuota
from tests.conftest import make_user
from tests.db.api.test_api import Api

State = QuotaRequest.State


@pytest.fixture
def chief(team, queue):
    """An administrator of the team, whose queues may have up to 64 slots together."""
    user = make_user("chief")
    Membership.objects.create(user=user, team=team, role=Role.ADMIN)
    services.set_ceiling(team=team, resource="cpu", slots=64, by=None)
    return user


@pytest.fixture
def flavored(queue):
    cohorts.make_flavor(by=None, name="slots", cluster=queue.cluster, resource="cpu")
    cohorts.set_quota(by=None, team=queue.team, flavor="slots", nominal=16, lending_limit=4)
    return queue.team


def asked(people, queue, slots=12, why="an evaluation on Friday") -> QuotaRequest:
    return requests.ask(by=people.teammate, queue=queue, slots=slots, why=why)


def test_what_is_granted_is_a_change_of_the_queue_with_its_reason(people, queue, chief):
    row = asked(people, queue)
    assert (row.has, requests.described(row)) == (8, "12 CPU slots instead of 8 for queue default")
    assert (
        [one.pk for one in requests.to_decide(chief)]
        == [row.pk]
        == [one.pk for one in requests.to_decide(people.admin)]
    )
    assert not requests.to_decide(people.teammate) and not requests.readable(people.stranger)
    done = requests.grant(request=row, by=chief, slots=10, answer="that is what is left")
    assert (done.state, done.granted, done.decided_by, Queue.objects.get(pk=queue.pk).nominal) == (
        State.GRANTED,
        10,
        chief,
        10,
    )
    changed = AuditEntry.objects.get(act="queue.change")
    assert (
        changed.after == {"slots": 10, "reason": "asked for by teammate: an evaluation on Friday"}
        and changed.actor == chief
    )
    assert AuditEntry.objects.get(act="quota.ask").after == {
        "queue": "default",
        "slots": 12,
        "why": "an evaluation on Friday",
    }
    assert AuditEntry.objects.get(act="quota.answer").after["answer"] == "granted"
    assert not requests.to_decide(chief)


def test_a_grant_that_the_ceiling_forbids_changes_nothing_and_stays_open(people, queue, chief):
    services.set_ceiling(team=queue.team, resource="cpu", slots=9, by=None)
    row = asked(people, queue)
    with pytest.raises(InvalidInput, match="beyond the ceiling"):
        requests.grant(request=row, by=chief)
    row.refresh_from_db()
    assert (row.state, Queue.objects.get(pk=queue.pk).nominal) == (State.OPEN, 8)
    assert requests.grant(request=row, by=people.admin).state == State.GRANTED, "who may raise the ceiling may grant it"


def test_a_grant_never_takes_quota_away(people, queue, chief):
    row = asked(people, queue)
    services.change(queue=queue, by=chief, slots=32)
    with pytest.raises(Conflict, match="there are 32 by now, and 12 would be no more; grant more, or decline"):
        requests.grant(request=row, by=people.admin)
    row.refresh_from_db()
    assert (row.state, Queue.objects.get(pk=queue.pk).nominal) == (State.OPEN, 32)


def test_of_a_flavor_the_platform_decides_and_what_else_the_team_has_of_it_stays(people, flavored, chief):
    row = requests.ask(by=chief, team=flavored, flavor="slots", slots=32, why="new hires")
    assert requests.described(row) == "32 CPU slots instead of 16 of flavor slots"
    assert not requests.to_decide(chief)
    with pytest.raises(NotAllowed, match="ask a platform administrator"):
        requests.grant(request=row, by=chief)
    requests.grant(request=row, by=people.admin)
    quota = TeamQuota.objects.get(team=flavored)
    assert (quota.nominal, quota.lending_limit) == (32, 4)


def test_one_is_open_at_a_time_and_is_decided_once(people, queue, chief):
    row = asked(people, queue)
    with pytest.raises(Conflict, match=f"request {row.pk} for 12 is open already"):
        asked(people, queue, slots=16)
    requests.decline(request=row, by=chief, answer="not this month")
    with pytest.raises(Conflict, match=f"request {row.pk} was declined by chief already"):
        requests.grant(request=row, by=people.admin)
    assert asked(people, queue, slots=16).state == State.OPEN


def test_who_asked_and_administrators_take_it_back(people, queue, chief):
    row = asked(people, queue)
    with pytest.raises(NotAllowed):
        requests.withdraw(request=row, by=people.owner)
    assert requests.withdraw(request=row, by=people.teammate).state == State.WITHDRAWN
    assert requests.withdraw(request=asked(people, queue), by=chief).state == State.WITHDRAWN


@pytest.mark.parametrize(
    ("slots", "why", "words"),
    [
        (8, "x", "slots: must be a whole number above the 8 that there are"),
        (True, "x", "whole number"),
        (10**7, "x", "at most 1000000"),
        (9, " ", "why: is missing; say what it is for"),
        (9, "x" * 501, "has 501 characters; at most 500"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_way_out(people, queue, slots, why, words):
    with pytest.raises(InvalidInput, match=words):
        asked(people, queue, slots, why)
    assert not QuotaRequest.objects.exists()


def test_viewers_do_not_ask_and_a_refusal_says_why(people, queue, chief):
    with pytest.raises(NotAllowed):
        requests.ask(by=people.viewer, queue=queue, slots=9, why="x")
    row = asked(people, queue)
    with pytest.raises(InvalidInput, match="answer: is missing; say why not"):
        requests.decline(request=row, by=chief, answer="")


def test_the_pages_lead_from_a_queue_to_an_answer(as_, people, queue, chief):
    member, admin = as_(people.teammate), as_(chief)
    assert 'href="/quota-requests?queue=default"' in member.get("/queues/default").text
    assert 'href="/quota-requests?queue=default"' not in as_(people.viewer).get("/queues/default").text
    form = member.get("/quota-requests?queue=default").text
    assert "Ask for more of queue default" in form and "There are 8 now." in form
    wrong = member.post("/quota-requests", {"act": "ask", "queue": "default", "slots": "8", "why": "because <b>"})
    assert wrong.status_code == 422 and "above the 8 that there are" in wrong.text and "because &lt;b&gt;" in wrong.text
    made = member.post(
        "/quota-requests", {"act": "ask", "queue": "default", "slots": "20", "why": "an evaluation"}, follow=True
    )
    assert "Asked for 20 CPU slots instead of 8 for queue default: administrators of team nlp decide." in made.text
    row = QuotaRequest.objects.get()
    assert "1 request to decide" in admin.get("/").text and "to decide" not in member.get("/").text
    inbox = admin.get("/quota-requests").text
    assert "20 is more than twice today&#x27;s quota of 8" in inbox and 'value="grant"' in inbox
    assert 'value="grant"' not in member.get("/quota-requests").text
    refused = admin.post("/quota-requests", {"act": "decline", "request": row.pk, "answer": ""})
    assert refused.status_code == 422 and "Answer is missing; say why not." in refused.text
    done = admin.post(
        "/quota-requests", {"act": "grant", "request": row.pk, "slots": "16", "answer": "for now"}, follow=True
    )
    assert "Granted: 16 in all; asked was for 20 CPU slots instead of 8 for queue default." in done.text
    told = member.get("/quota-requests").text
    assert "Granted" in told and "by chief" in told and "for now" in told
    again = admin.post("/quota-requests", {"act": "grant", "request": row.pk, "slots": "16"})
    assert again.status_code == 409 and "was granted by chief already" in again.text


def test_a_flavor_is_asked_for_on_the_page_of_its_quota(as_, people, flavored):
    member = as_(people.teammate)
    link = "/quota-requests?team=nlp&amp;flavor=slots"
    assert link in member.get("/teams/nlp/quota").text
    assert "Ask for more of flavor slots for team nlp" in member.get(link.replace("&amp;", "&")).text
    member.post("/quota-requests", {"act": "ask", "team": "nlp", "flavor": "slots", "slots": "64", "why": "x"})
    inbox = as_(people.admin).get("/quota-requests").text
    assert "64 is more than twice today&#x27;s 16" in inbox
    assert as_(people.stranger).get(link.replace("&amp;", "&")).status_code == 404


def test_the_api_lists_asks_decides_and_says_what_is_wrong(client, people, queue, chief):
    member, admin = (Api(client, Token.issue(who, "test", scope="manage")[1]) for who in (people.teammate, chief))
    made = member.post("/quota-requests", {"queue": "default", "slots": 12, "why": "x"})
    assert (made.status_code, made.json()["words"]) == (201, "12 CPU slots instead of 8 for queue default")
    place = f"/quota-requests/{made.json()['id']}"
    assert member.post(place, {"verdict": "grant"}).status_code == 403
    [wrong] = admin.post(place, {"verdict": "maybe"}).json()["errors"]
    assert wrong["field"] == "verdict"
    assert admin.post(place, {"verdict": "grant"}).json()["granted"] == 12
    assert [one["state"] for one in member.get("/quota-requests?state=granted").json()["results"]] == ["granted"]
    [wrong] = member.get("/quota-requests?state=lost").json()["errors"]
    assert "must be one of open, granted, declined, withdrawn" in wrong["message"]
    [wrong] = member.post("/quota-requests", {"queue": "nowhere", "slots": 12, "why": "x"}).json()["errors"]
    assert wrong["field"] == "queue" and "no queue that you may see" in wrong["message"]
    [wrong] = member.post("/quota-requests", {"slots": 12, "why": "x"}).json()["errors"]
    assert (wrong["field"], wrong["message"]) == ("queue", "must be given, or team and flavor instead of it")
