"""Signing in: guessing is throttled, sessions are new and expire, trivial passwords are refused."""

import time

import pytest
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.test import Client

from accounts.models import SignIn
from accounts.signin import session_lifetime

RIGHT = "owner-has-a-password"


def page(name: str, password: str, address: str = "192.0.2.1"):
    return Client(REMOTE_ADDR=address).post("/login", {"username": name, "password": password})


def api(name: str, password: str, address: str = "192.0.2.1"):
    sent = {"username": name, "password": password}
    return Client(REMOTE_ADDR=address).post("/api/v1/login", sent, content_type="application/json")


DOORS = pytest.mark.parametrize(("door", "inside"), [(page, 302), (api, 201)], ids=["page", "api"])


def guess(door, name: str = "owner", times: int = 5) -> list[int]:
    return [door(name, f"wrong-{number}").status_code for number in range(times)]


@DOORS
def test_after_wrong_guesses_even_the_right_password_has_to_wait(people, door, inside):
    assert 429 not in guess(door, times=4)
    assert door("owner", "wrong").status_code == 429
    refused = door("owner", RIGHT)
    assert refused.status_code == 429
    assert 0 < int(refused.headers["Retry-After"]) <= 15 * 60
    assert "15 minutes" in refused.text


@DOORS
def test_failed_logins_count_across_page_and_api(people, door, inside):
    guess(api if door is page else page)
    assert door("owner", RIGHT).status_code == 429


@DOORS
def test_a_lockout_does_not_affect_other_users_or_addresses(people, door, inside):
    guess(door)
    assert door("teammate", "teammate-has-a-password").status_code == inside
    assert door("owner", RIGHT, address="192.0.2.2").status_code == inside


@DOORS
def test_a_right_password_resets_the_count_of_wrong_ones(people, door, inside):
    for _ in range(3):
        assert 429 not in guess(door, times=4)
        assert door("owner", RIGHT).status_code == inside


@DOORS
def test_a_lockout_ends_after_a_while_or_by_command(people, door, inside, settings):
    guess(door)
    call_command("axes_reset_username", "owner", verbosity=0)
    assert door("owner", RIGHT).status_code == inside
    guess(door)
    from datetime import timedelta

    settings.AXES_COOLOFF_TIME = timedelta(0)
    assert door("owner", RIGHT).status_code == inside


@DOORS
def test_an_unknown_user_gets_the_same_answer_as_a_wrong_password(people, door, inside):
    known, unknown = door("owner", "wrong"), door("nobody-at-all", "wrong")
    assert known.status_code == unknown.status_code
    assert strip(known.text, "owner") == strip(unknown.text, "nobody-at-all")
    assert guess(door, times=4)[-1] == guess(door, "nobody-at-all", times=4)[-1] == 429


def strip(text: str, name: str) -> str:
    import re

    return re.sub(r'name="csrfmiddlewaretoken" value="[^"]+"', "", text).replace(name, "NAME")


def test_a_forged_forwarding_header_does_not_evade_the_lockout(people):
    for number in range(5):
        claimed = {"X-Forwarded-For": f"192.0.2.{number}", "X-Real-IP": f"192.0.2.{number}"}
        sent = {"username": "owner", "password": "wrong"}
        answer = Client(REMOTE_ADDR="192.0.2.1").post("/login", sent, headers=claimed)
    assert answer.status_code == 429


def test_no_password_is_stored_with_a_failed_attempt(people):
    from axes.models import AccessAttempt

    page("owner", "my-real-password-mistyped")
    api("teammate", "my-real-password-mistyped")
    kept = [str(value) for row in AccessAttempt.objects.values() for value in row.values()]
    assert len(kept) > 10
    assert not [value for value in kept if "mistyped" in value]


@pytest.mark.parametrize("name", ["x" * 151, "owner\0", "owner\nroot", "x" * 10_000, "‮renwo", "'; DROP TABLE users;--"])
@DOORS
def test_a_malformed_username_is_refused_without_an_error(people, door, inside, name):
    assert door(name, "wrong").status_code in (200, 400, 401, 422)


def session_of(client: Client) -> str:
    return client.cookies["sessionid"].value


def test_a_login_gets_a_new_session(people):
    client = Client()
    client.force_login(people.teammate)
    before = session_of(client)
    client.post("/logout")
    assert not SignIn.objects.filter(session_key=before).exists()
    planted = Client()
    planted.cookies["sessionid"] = "chosen-by-somebody-else-entirely"
    planted.post("/login", {"username": "owner", "password": RIGHT})
    assert session_of(planted) not in (before, "chosen-by-somebody-else-entirely")
    assert len(session_of(planted)) >= 32


def test_a_session_is_invalid_after_logout(people):
    client = Client()
    client.force_login(people.owner)
    stolen = session_of(client)
    client.post("/logout")
    thief = Client()
    thief.cookies["sessionid"] = stolen
    assert thief.get("/jobs").status_code == 302


def aged(client: Client, **seconds: int) -> Client:
    session = client.session
    for name, age in seconds.items():
        session[name] = int(time.time()) - age
    session.save()
    return client


@pytest.mark.parametrize(
    ("ages", "is_in"),
    [
        ({session_lifetime.SINCE: 167 * 3600, session_lifetime.SEEN: 3600}, True),
        ({session_lifetime.SINCE: 169 * 3600, session_lifetime.SEEN: 0}, False),  # in use, but too old
        ({session_lifetime.SINCE: 26 * 3600, session_lifetime.SEEN: 25 * 3600}, False),  # recent, but idle
        ({session_lifetime.SINCE: 26 * 3600, session_lifetime.SEEN: 23 * 3600}, True),
    ],
)
def test_a_session_expires_by_age_and_by_inactivity(as_, people, ages, is_in):
    client = aged(as_(people.owner), **ages)
    assert client.get("/jobs").status_code == (200 if is_in else 302)
    assert client.get("/api/v1/me").status_code == (200 if is_in else 401)


def test_an_api_login_does_not_change_the_session_of_the_browser(as_, people):
    """A script on the same machine or a form of another site: its address and time do not belong to that session."""
    client = aged(as_(people.teammate), **{session_lifetime.SINCE: 7200, session_lifetime.SEEN: 3600})
    before = dict(client.session.items())
    sent = {"username": "owner", "password": RIGHT, "name": "script"}
    answer = client.post("/api/v1/login", sent, content_type="application/json", headers={"User-Agent": "script/1"})
    assert answer.status_code == 201 and "sessionid" not in answer.cookies
    wrong = client.post("/api/v1/login", {**sent, "password": "wrong"}, content_type="application/json")
    assert wrong.status_code == 401 and "sessionid" not in wrong.cookies
    assert dict(client.session.items()) == before
    assert client.get("/api/v1/me").json()["user"] == "teammate"
    people.owner.refresh_from_db()
    assert people.owner.last_login is not None  # the `user_logged_in` signal is still sent


def test_the_last_use_of_a_session_is_updated_periodically(as_, people):
    client = aged(as_(people.owner), **{session_lifetime.SEEN: 3600})
    client.get("/jobs")
    assert time.time() - client.session[session_lifetime.SEEN] < 60


def test_a_deactivated_user_loses_access_at_once(as_, people):
    client = as_(people.owner)
    people.owner.is_active = False
    people.owner.save()
    assert client.get("/jobs").status_code == 302
    assert client.get("/api/v1/me").status_code == 401
    assert page("owner", RIGHT).status_code == 200


def test_a_password_change_needs_the_current_one_and_ends_other_sessions(as_, people):
    here, elsewhere = as_(people.owner), as_(people.owner)
    new = "four unrelated brown llamas"
    sent = {"old_password": "wrong", "new_password1": new, "new_password2": new}
    assert here.post("/account/password", sent).status_code == 200
    people.owner.refresh_from_db()
    assert people.owner.check_password(RIGHT)
    assert here.post("/account/password", {**sent, "old_password": RIGHT}).status_code == 302
    people.owner.refresh_from_db()
    assert people.owner.check_password(new)
    assert here.get("/jobs").status_code == 200
    assert elsewhere.get("/jobs").status_code == 302


def test_a_weak_new_password_is_refused_with_its_reason(as_, people):
    client = as_(people.owner)
    answer = client.post(
        "/account/password", {"old_password": RIGHT, "new_password1": "short", "new_password2": "short"}
    )
    assert "at least 12 characters" in answer.text
    people.owner.refresh_from_db()
    assert people.owner.check_password(RIGHT)


@pytest.mark.parametrize(
    "password",
    [
        "elevenchars",
        "password1234!",
        "!!!!letmein9999",
        "qwertyqwertyqwerty",
        "MUSTER-2026-2026",
        "torchrun12345678",
        "123456789012345",
        "aaaaaaaaaaaaaaaa",
        "owner-owner-owner",
    ],
)
def test_a_common_password_is_refused(people, password):
    with pytest.raises(ValidationError):
        validate_password(password, people.owner)


@pytest.mark.parametrize("password", ["q1w2e3r4t5y6", "1qaz2wsx3edc4rfv", "Michelle1234", "liverpool-2004!"])
def test_a_leaked_password_is_refused(people, password):
    """From lists of breaches, also where a year was appended to make it long enough."""
    with pytest.raises(ValidationError):
        validate_password(password, people.owner)


@pytest.mark.parametrize(
    "password",
    [
        "brown llama under seven bridges",
        "correcthorsebatterystaple-x",
        "пароль из четырёх слов здесь",
        "k7#Lq9!vTz2$",
        "x" * 3 + "quite long indeed " * 6,  # longer than 64 characters
        "               fifteen blanks first",
    ],
)
def test_passwords_of_any_kind_of_characters_are_accepted(people, password):
    validate_password(password, people.owner)


def test_a_password_is_used_exactly_as_typed(people):
    typed = "  Blanks Around And CASE kept  " + "y" * 70
    people.owner.set_password(typed)
    people.owner.save()
    for door, inside in ((page, 302), (api, 201)):
        assert door("owner", typed).status_code == inside
        assert door("owner", typed.strip()).status_code != inside
        assert door("owner", typed.lower()).status_code != inside
        assert door("owner", typed[:72]).status_code != inside


def test_forms_mask_passwords_and_support_password_managers(as_, people):
    for text in (Client().get("/login").text, as_(people.owner).get("/account/password").text):
        assert 'type="password"' in text
        assert 'autocomplete="current-password"' in text
        assert "onpaste" not in text
    assert 'autocomplete="new-password"' in as_(people.owner).get("/account/password").text


@pytest.mark.parametrize("target", ["https://elsewhere.example/", "//elsewhere.example", "javascript:alert(1)"])
def test_login_redirects_to_no_other_site(people, target):
    answer = Client().post("/login", {"username": "owner", "password": RIGHT, "next": target})
    assert answer.url == "/jobs"


@pytest.mark.parametrize("path", ["/jobs", "/queues", "/jobs/new", "/account/password", "/api/docs"])
def test_every_page_has_a_logout_form(as_, people, path):
    assert 'action="/logout"' in as_(people.owner).get(path).text
