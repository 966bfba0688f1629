"""A second factor: set up with the password, required on page and API, single-use codes, throttled, removable."""

import io
import re
from datetime import UTC, datetime, timedelta

import pyotp
import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry, Membership, RecoveryCode, SecondFactor, Token, User
from accounts.signin import second_factor
from accounts.signin.second_factor import matching_step, pause
from common.limits.rates import Buckets
from controlplane.edge import rates

RIGHT = "owner-has-a-password"
PAGE = "/account/second-factor"


def now_of(secret: str, steps: int = 0) -> str:
    """The code that an authenticator shows, offset by a number of half-minute steps."""
    return pyotp.TOTP(secret).at(timezone.now(), counter_offset=steps)


def password(client: Client, name: str = "owner", **more):
    return client.post("/login", {"username": name, "password": f"{name}-has-a-password", **more})


def api(**more):
    sent = {"username": "owner", "password": RIGHT, **more}
    return Client().post("/api/v1/login", sent, content_type="application/json")


def forget_steps() -> None:
    """As if half a minute had passed since the last code, so that the same code may be used again."""
    SecondFactor.objects.update(last_step=0)


@pytest.fixture
def secret(people) -> str:
    """The owner's second factor, set up as the page does it."""
    return set_up(people.owner)[0]


def set_up(user: User) -> tuple[str, list[str]]:
    text = second_factor.begin(user)
    codes = second_factor.confirm(user, now_of(text))
    forget_steps()
    return text, codes


def test_a_second_factor_is_set_up_and_required_from_then_on(as_, people):
    client = as_(people.owner)
    assert "Set it up" in client.get(PAGE).text
    begun = client.post(PAGE, {"act": "begin"})
    secret = re.search(r'id="factor-secret"[^>]*>([A-Z2-7 ]+)<', begun.text)[1]
    assert len(secret.replace(" ", "")) == 32  # 160 bits
    assert "otpauth://totp/Muster:owner" in begun.text
    assert password(Client()).url == "/jobs"  # not required until a code was confirmed
    done = client.post(PAGE, {"act": "confirm", "code": now_of(secret.replace(" ", "")), "password": RIGHT})
    codes = re.findall(r"<li><code>([a-z0-9-]+)</code>", done.text)
    assert len(set(codes)) == 10 and {len(code) for code in codes} == {27}
    assert "no-store" in done.headers["Cache-Control"]
    again = client.get(PAGE).text
    assert secret not in again and codes[0] not in again and "10 recovery codes left" in again
    assert password(Client()).url.startswith("/login/code")
    assert AuditEntry.objects.filter(act="factor.add", target_name="owner").count() == 1


@pytest.mark.parametrize(
    ("code", "given", "words"),
    [("000000", RIGHT, "does not match the authenticator"), (None, "wrong", "not your current password")],
)
def test_setting_it_up_needs_the_password_and_a_right_code(as_, people, code, given, words):
    client, text = as_(people.owner), second_factor.begin(people.owner)
    sent = {"act": "confirm", "code": code or now_of(text), "password": given}
    assert words in client.post(PAGE, sent).text
    assert not second_factor.is_asked(people.owner)


def test_secrets_and_recovery_codes_are_not_stored_in_plain_text(people):
    text, codes = set_up(people.owner)
    kept = str(list(SecondFactor.objects.values())) + str(list(RecoveryCode.objects.values()))
    kept += str(list(AuditEntry.objects.values()))
    assert text not in kept and not [code for code in codes if code in kept or code.replace("-", "") in kept]
    assert RecoveryCode.objects.count() == 10


def test_the_password_alone_gives_no_access(secret):
    client = Client()
    assert password(client).url == "/login/code?next=%2Fjobs"
    assert client.get("/jobs").url.startswith("/login?next=")
    assert client.get("/api/v1/me").status_code == 401
    assert client.get(PAGE).url.startswith("/login?next=")


def test_the_page_accepts_a_code_and_redirects(secret):
    client = Client()
    where = password(client, next="/queues").url
    before = client.cookies["sessionid"].value
    assert "code from your authenticator app" in client.get(where).text
    assert client.post(where, {"code": now_of(secret), "next": "/queues"}).url == "/queues"
    assert client.get("/queues").status_code == 200
    assert client.cookies["sessionid"].value != before
    assert AuditEntry.objects.filter(act="login", actor_name="owner").count() == 1


@pytest.mark.parametrize("target", ["https://elsewhere.example/", "//elsewhere.example", "javascript:alert(1)"])
def test_the_code_page_redirects_to_no_other_site(secret, target):
    client = Client()
    password(client, next=target)
    assert client.post("/login/code", {"code": now_of(secret), "next": target}).url == "/jobs"


def test_the_code_page_without_a_password_redirects_to_the_login(secret):
    client = Client()
    assert client.get("/login/code").url == "/login"
    assert client.post("/login/code", {"code": now_of(secret)}).url == "/login"
    assert client.get("/jobs").status_code == 302


def test_a_code_must_follow_within_minutes_of_the_same_password(secret, people):
    client = Client()
    password(client)
    session = client.session
    pk, at, proof = session["half_signed_in"]
    session["half_signed_in"] = [pk, at - 301, proof]
    session.save()
    assert client.post("/login/code", {"code": now_of(secret)}).url == "/login"
    password(client)
    people.owner.set_password("another one altogether")
    people.owner.save()
    assert client.post("/login/code", {"code": now_of(secret)}).url == "/login"


def test_the_api_requires_the_code_as_a_field(secret):
    asked = api()
    assert asked.status_code == 422 and [one["field"] for one in asked.json()["errors"]] == ["code"]
    assert api(code="000000").status_code == 401
    assert not Token.objects.exists()
    assert api(code=now_of(secret)).status_code == 201


def test_a_code_can_be_used_once(secret):
    code = now_of(secret)
    assert api(code=code).status_code == 201
    assert api(code=code).status_code == 401
    client = Client()
    password(client)
    assert "already used" in client.post("/login/code", {"code": code}).text


def test_a_recovery_code_can_be_used_once_in_any_notation(people):
    _, codes = set_up(people.owner)
    assert api(code=codes[0].upper() + " ").status_code == 201
    assert api(code=codes[0]).status_code == 401
    assert second_factor.codes_left(people.owner) == 9
    assert AuditEntry.objects.get(act="factor.recover").after == {"left": 9}


def test_a_code_of_another_user_is_refused(people, secret):
    other, codes = set_up(people.teammate)
    assert api(code=now_of(other)).status_code == 401
    assert api(code=codes[0]).status_code == 401


@pytest.mark.parametrize("door", ["page", "api"])
def test_guessing_codes_is_throttled_across_addresses(secret, people, door, settings):
    def guess(code: str, address: str):
        client = Client(REMOTE_ADDR=address)
        if door == "api":
            sent = {"username": "owner", "password": RIGHT, "code": code}
            return client.post("/api/v1/login", sent, content_type="application/json")
        password(client)
        return client.post("/login/code", {"code": code})

    for number in range(5):
        assert "too many" not in guess("000000", f"192.0.2.{number}").text
    refused = guess(now_of(secret), "192.0.2.99")
    assert "too many wrong codes" in refused.text
    assert refused.status_code == 200 or 0 < int(refused.headers["Retry-After"]) <= 15 * 60
    assert AuditEntry.objects.filter(act="login.failed", after__step="second factor").count() == 5
    settings.AXES_COOLOFF_TIME = timedelta(0)
    assert guess(now_of(secret), "192.0.2.99").status_code in (201, 302)
    assert SecondFactor.objects.get().failures == 0


def test_only_wrong_codes_after_the_right_password_count(secret):
    for number in range(20):
        sent = {"username": "owner", "password": "wrong", "code": "000000"}
        Client(REMOTE_ADDR=f"192.0.2.{number}").post("/api/v1/login", sent, content_type="application/json")
    assert SecondFactor.objects.get().failures == 0
    assert api(code=now_of(secret)).status_code == 201


def test_attempts_with_a_code_count_as_logins_of_the_address(secret, settings, monkeypatch):
    monkeypatch.setattr(rates, "buckets", Buckets(clock=lambda: 0.0))
    settings.MUSTER_RATE_LOGIN = 3
    client = Client()
    password(client)
    assert [client.post("/login/code", {"code": "x"}).status_code for _ in range(4)] == [200, 200, 429, 429]


def test_removing_it_needs_the_password(as_, people, secret):
    client = as_(people.owner)
    assert "not your current password" in client.post(PAGE, {"act": "remove", "password": "wrong"}).text
    assert second_factor.is_asked(people.owner)
    assert AuditEntry.objects.get(act="login.failed").after == {"way": "account", "is_known": True}
    assert "was removed" in client.post(PAGE, {"act": "remove", "password": RIGHT}).text
    assert password(Client()).url == "/jobs"
    assert not RecoveryCode.objects.exists()
    assert AuditEntry.objects.filter(act="factor.remove", actor_name="owner").count() == 1


def test_guessing_the_password_there_is_throttled_too(as_, people, secret):
    client = as_(people.owner)
    statuses = [client.post(PAGE, {"act": "remove", "password": f"wrong-{number}"}).status_code for number in range(6)]
    assert 429 in statuses
    assert client.post(PAGE, {"act": "remove", "password": RIGHT}).status_code == 429
    assert second_factor.is_asked(people.owner)


def test_setting_up_a_second_one_does_not_replace_the_first(as_, people, secret):
    assert "remove it first" in as_(people.owner).post(PAGE, {"act": "begin"}).text
    assert api(code=now_of(secret)).status_code == 201


def test_new_recovery_codes_replace_the_old_ones(as_, people):
    _, codes = set_up(people.owner)
    shown = as_(people.owner).post(PAGE, {"act": "codes", "password": RIGHT}).text
    new = re.findall(r"<li><code>([a-z0-9-]+)</code>", shown)
    assert len(new) == 10 and not set(new) & set(codes)
    assert api(code=codes[0]).status_code == 401
    assert api(code=new[0]).status_code == 201


def test_an_operator_removes_a_lost_second_factor(people, secret):
    said = io.StringIO()
    call_command("person", "owner", "--remove-second-factor", stdout=said)
    assert "password only" in said.getvalue()
    assert api().status_code == 201
    assert AuditEntry.objects.get(act="factor.remove").actor_name == ""


@pytest.mark.parametrize(
    ("asked_of", "required"),
    [("optional", []), ("admins", ["root", "stranger"]), ("all", ["root", "stranger", "owner", "viewer"])],
)
def test_users_who_must_have_one_are_redirected_to_it(as_, people, settings, asked_of, required):
    """`stranger` is administrator of the other team."""
    settings.MUSTER_SECOND_FACTOR = asked_of
    for user in (people.admin, people.stranger, people.owner, people.viewer):
        client, name = as_(user), user.username
        answer = client.get("/jobs")
        assert (answer.status_code == 302 and answer.url == PAGE) is (name in required), name
        assert client.get("/api/v1/me").status_code == (403 if name in required else 200)
        sent = {"username": name, "password": f"{name}-has-a-password"}
        refused = Client().post("/api/v1/login", sent, content_type="application/json")
        assert refused.status_code == (403 if name in required else 201)
        assert (PAGE in refused.text) is (name in required)
    if required:
        set_up(people.admin)
        assert as_(people.admin).get("/jobs").status_code == 200


def test_off_requires_it_of_no_user(people, secret, settings, as_):
    settings.MUSTER_SECOND_FACTOR = "off"
    assert password(Client()).url == "/jobs"
    assert "turned off in this installation" in as_(people.teammate).post(PAGE, {"act": "begin"}).text


def test_an_api_token_needs_no_second_factor(people, team, secret, settings):
    settings.MUSTER_SECOND_FACTOR = "all"
    text = Token.issue(people.owner, "x")[1]
    headers = {"Authorization": f"Bearer {text}"}
    assert Client().get("/api/v1/me", headers=headers).status_code == 200
    assert Membership.objects.filter(user=people.owner, team=team).exists()


def test_secrets_cannot_be_read_with_another_server_key(secret, settings):
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another", []
    client = Client()
    password(client)
    assert "MUSTER_SECRET_KEY was changed" in client.post("/login/code", {"code": "123456"}).text
    settings.SECRET_KEY_FALLBACKS = ["only for tests"]
    assert api(code=now_of(secret)).status_code == 201


SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
NOON = datetime(2026, 11, 21, 12, 0, 15, tzinfo=UTC)
STEP = int(NOON.timestamp()) // 30


@pytest.mark.parametrize(
    ("offset", "after", "found"),
    [
        (0, 0, STEP),
        (-1, 0, STEP - 1),
        (1, 0, STEP + 1),
        (-2, 0, 0),
        (2, 0, 0),
        (0, STEP, 0),  # already used
        (-1, STEP, 0),  # older than the last one used
        (1, STEP, STEP + 1),
    ],
)
def test_codes_of_adjacent_steps_match_unless_used(offset, after, found):
    code = pyotp.TOTP(SECRET).at(NOON, counter_offset=offset)
    assert matching_step(SECRET, code, now=NOON, after=after) == found
    assert matching_step(SECRET, f" {code[:3]} {code[3:]} ", now=NOON, after=after) == found


@pytest.mark.parametrize("code", ["", "12345", "1234567", "абвгде", "١٢٣٤٥٦", "0" * 40, "\0"])
def test_malformed_codes_match_nothing(code):
    assert matching_step(SECRET, code, now=NOON, after=0) == 0


@pytest.mark.parametrize(
    ("failures", "ago", "left"),
    [(0, 0, 0), (4, 0, 0), (5, 0, 900), (5, 600, 300), (5, 901, 0), (6, 0, 0), (10, 60, 840)],
)
def test_the_pause_after_wrong_codes(failures, ago, left):
    assert pause(failures, NOON - timedelta(seconds=ago), now=NOON) == left
