"""Users see where they are signed in, and can end one or all other sessions, but only their own."""

import importlib
import re
import time
from datetime import timedelta

import pyotp
import pytest
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry, SignIn
from accounts.signin import second_factor, session_lifetime

PAGE = "/account/sessions"
RIGHT = "owner-has-a-password"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
EDGE = "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36 Edg/140.0"


def browser(agent: str = FIREFOX, address: str = "192.0.2.1", name: str = "owner") -> Client:
    client = Client(REMOTE_ADDR=address, headers={"User-Agent": agent})
    assert client.post("/login", {"username": name, "password": f"{name}-has-a-password"}).status_code == 302
    return client


def refs(client: Client) -> list[str]:
    return re.findall(r'name="end" value="([0-9a-f]{16})"', client.get(PAGE).text)


def is_in(client: Client) -> bool:
    return client.get("/jobs").status_code == 200


def test_the_list_shows_browser_address_times_and_the_current_session(people):
    here, there = browser(), browser(EDGE, "192.0.2.77")
    text = here.get(PAGE).text
    assert "Firefox on Linux" in text and "Edge on Windows" in text
    assert "192.0.2.1" in text and "192.0.2.77" in text
    assert text.count("current session") == 1 and len(refs(here)) == 1  # the current session ends by logging out
    assert text.count("<time") >= 4
    key = there.cookies["sessionid"].value
    assert key not in text and here.cookies["sessionid"].value not in text


def test_a_user_agent_is_shown_as_text(people):
    text = browser("<script>alert(1)</script>\x1b[31m").get(PAGE).text
    assert "<script>alert" not in text and "&lt;script&gt;" in text


def test_one_session_is_ended_and_no_other(people):
    here, there, third = browser(), browser(EDGE), browser("curl/8.5")
    ref = next(one for one in refs(here) if f"end-{one}" in here.get(PAGE).text.split("Edge on Windows")[1])
    here.post(PAGE, {"end": ref, "password": RIGHT})
    assert [is_in(one) for one in (here, there, third)] == [True, False, True]
    assert AuditEntry.objects.get(act="session.end").after == {"ended": 1}
    assert "had already ended" in here.post(PAGE, {"end": ref, "password": RIGHT}, follow=True).text


def test_all_other_sessions_are_ended(people):
    here, others = browser(), [browser(EDGE), browser()]
    somebody = browser(name="teammate")
    here.post(PAGE, {"end": "others", "password": RIGHT})
    assert is_in(here) and not any(is_in(one) for one in others)
    assert is_in(somebody)
    assert SignIn.objects.filter(user=people.owner).count() == 1


def test_ending_a_session_needs_the_password(people):
    here, there = browser(), browser(EDGE)
    (ref,) = refs(here)
    for end in (ref, "others"):
        assert "not your current password" in here.post(PAGE, {"end": end, "password": "wrong"}, follow=True).text
    assert is_in(there)


def test_a_user_cannot_end_a_session_of_another_user(people):
    theirs, eve = browser(), browser(name="teammate")
    second = browser()
    (ref,) = refs(second)
    eve.post(PAGE, {"end": ref, "password": "teammate-has-a-password"})
    assert is_in(theirs) and is_in(second)
    assert refs(eve) == []


@pytest.mark.parametrize(("name", "hours"), [(session_lifetime.SINCE, 169), (session_lifetime.SEEN, 25)])
def test_expired_sessions_are_not_listed(people, name, hours):
    here, there = browser(), browser(EDGE)
    session = there.session
    session[name] = int(time.time()) - hours * 3600
    session.save()
    assert "Edge" not in here.get(PAGE).text


def test_a_new_second_factor_ends_the_other_sessions(people):
    here, there = browser(), browser(EDGE)
    text = second_factor.begin(people.owner)
    sent = {"act": "confirm", "code": pyotp.TOTP(text).at(timezone.now()), "password": RIGHT}
    assert "recovery codes" in here.post("/account/second-factor", sent).text
    assert is_in(here) and not is_in(there)


def test_the_current_session_stays_listed_after_a_password_change(people):
    here = browser()
    new = "four unrelated brown llamas"
    here.post("/account/password", {"old_password": RIGHT, "new_password1": new, "new_password2": new})
    assert "current session" in here.get(PAGE).text


def test_a_migrated_session_stays_valid_and_is_assigned_to_its_user_on_use(people):
    here = browser()
    session = here.session
    session[session_lifetime.SEEN] = int(time.time()) - 3600  # so that its next use is recorded
    session.save()
    row = SignIn.objects.get(user=people.owner)
    key = row.session_key
    Session.objects.create(session_key=key, session_data=row.session_data, expire_date=row.expire_date)
    Session.objects.create(session_key="old", session_data="", expire_date=timezone.now() - timedelta(hours=1))
    row.delete()
    moved = importlib.import_module("accounts.migrations.0006_sign_ins")
    with connection.cursor() as cursor:
        cursor.execute(moved.KEEP_SIGNED_IN)
        cursor.execute(moved.FORGET)
    assert SignIn.objects.get().user is None and not Session.objects.exists()
    here.cookies["sessionid"] = key
    assert is_in(here)
    assert SignIn.objects.get().user == people.owner
    assert "current session" in here.get(PAGE).text
