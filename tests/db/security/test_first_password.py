"""With an initial password, only one page is open: the one where the user chooses another."""

import io
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry, Token, User

OWN = "four unrelated brown llamas"


def person(*words: str) -> str:
    """Runs the command and returns the password that it prints."""
    said = io.StringIO()
    call_command("person", *words, stdout=said)
    return said.getvalue().split(" with ")[1].split(" ")[0]


def page(name: str, password: str) -> tuple[Client, int]:
    client = Client()
    return client, client.post("/login", {"username": name, "password": password}).status_code


def api(name: str, password: str):
    sent = {"username": name, "password": password}
    return Client().post("/api/v1/login", sent, content_type="application/json")


def change(client: Client, old: str, new: str):
    return client.post("/account/password", {"old_password": old, "new_password1": new, "new_password2": new})


@pytest.fixture
def first(team) -> str:
    return person("ada", "--team", "nlp", "--role", "admin")


def test_no_other_page_is_open_until_a_new_password_is_chosen(first):
    client, status = page("ada", first)
    assert status == 302
    for path in ("/jobs", "/account", "/account/tokens", "/teams/nlp", "/jobs/new", "/api/docs"):
        assert client.get(path).url == "/account/password", path
    for path in ("/api/v1/me", "/api/v1/jobs", "/live"):
        answer = client.get(path)
        assert answer.status_code == 403 and "/account/password" in answer.json()["detail"], path
    client.post("/account/tokens", {"name": "x", "scope": "read", "expires_in_days": "7"})
    assert not Token.objects.exists()
    assert "set by somebody else" in client.get("/account/password").text
    assert change(client, first, OWN).status_code == 302
    assert client.get("/jobs").status_code == 200
    assert User.objects.get(username="ada").first_password_until is None
    assert page("ada", OWN)[0].get("/jobs").status_code == 200


def test_logging_out_is_always_possible(first):
    client, _ = page("ada", first)
    assert client.post("/logout").status_code == 302
    assert client.get("/jobs").url.startswith("/login")


def test_the_api_issues_no_token_for_an_initial_password_and_names_the_page(first):
    refused = api("ada", first)
    assert refused.status_code == 403
    assert "/account/password" in refused.json()["detail"]
    assert not Token.objects.exists()
    change(page("ada", first)[0], first, OWN)
    assert api("ada", OWN).status_code == 201


def test_the_new_password_must_differ(first):
    client, _ = page("ada", first)
    assert "current password" in change(client, first, first).text
    assert client.get("/jobs").url == "/account/password"


def test_an_initial_password_expires_after_two_weeks(first):
    ada = User.objects.get(username="ada")
    assert timedelta(days=13, hours=23) < ada.first_password_until - timezone.now() <= timedelta(days=14)
    User.objects.filter(pk=ada.pk).update(first_password_until=timezone.now() - timedelta(seconds=1))
    client = Client()
    answer = client.post("/login", {"username": "ada", "password": first})
    assert answer.status_code == 200 and "this initial password has expired" in answer.text
    assert "this initial password has expired" in api("ada", first).json()["detail"]
    assert client.get("/account/password").url.startswith("/login")
    assert page("ada", person("ada", "--new-password"))[1] == 302


def test_a_forgotten_password_is_replaced_by_an_initial_one(people):
    inside = Client()
    inside.force_login(people.owner)
    given = person("owner", "--new-password")
    assert inside.get("/jobs").url.startswith("/login")  # every session ended
    client, status = page("owner", given)
    assert (status, client.get("/jobs").url) == (302, "/account/password")
    entry = AuditEntry.objects.get(act="password.give")
    assert (entry.target_name, entry.actor_name) == ("owner", "")
    assert given not in str(list(AuditEntry.objects.values()))


@pytest.mark.parametrize(("name", "words"), [("nobody", "check the spelling"), ("bot@nlp", "has tokens")])
def test_an_unknown_user_or_a_service_account_gets_no_password(team, people, name, words):
    from accounts import members

    members.make_service_account(team=team, name="bot", role="member", by=people.admin)
    with pytest.raises(CommandError, match=words):
        call_command("person", name, "--new-password")


@pytest.fixture
def demo_admin(db) -> User:
    """The administrator as bin/demo creates it."""
    until = timezone.now() + timedelta(days=14)
    return User.objects.create_superuser("chief", password=OWN, first_password_until=until)


def test_an_administrator_whose_password_stands_in_a_log_has_to_choose_one(demo_admin):
    client, _ = page("chief", OWN)
    assert client.get("/jobs").url == "/account/password"
    assert api("chief", OWN).status_code == 403


def test_an_administrator_who_could_keep_it_until_now_still_signs_in_to_choose_one(demo_admin, settings):
    """Before, `docker compose up` let them keep it for good; at an upgrade they must not be locked out."""
    User.objects.update(first_password_until=timezone.now() - timedelta(days=300))
    client, status = page("chief", OWN)
    assert (status, client.get("/jobs").url) == (302, "/account/password")
    settings.ALLOWED_HOSTS = ["testserver", "muster.example"]
    assert page("chief", OWN)[1] == 200  # the form again: it is over


def test_the_administrator_of_the_demo_is_exempt_only_on_a_local_host(demo_admin, settings):
    settings.MUSTER_KEEP_FIRST_PASSWORD = True
    client, _ = page("chief", OWN)
    assert client.get("/jobs").status_code == 200
    assert api("chief", OWN).status_code == 201
    settings.ALLOWED_HOSTS = ["127.0.0.1", "testserver", "muster.example"]
    assert client.get("/jobs").url == "/account/password"
    assert api("chief", OWN).status_code == 403
    change(client, OWN, OWN + " more")
    assert client.get("/jobs").status_code == 200


def test_other_users_are_not_exempt_there(first):
    """The exception is for one account, not for the machine."""
    assert page("ada", first)[0].get("/jobs").url == "/account/password"
