"""`manage.py person`: people are made and let go on the server, and that is written down."""

import io

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from accounts.models import AuditEntry, Membership, Team, Token, User
from tests.db.accounts.conftest import Api

pytestmark = pytest.mark.django_db


def person(*arguments: str) -> str:
    said = io.StringIO()
    call_command("person", *arguments, stdout=said)
    return said.getvalue()


def test_a_person_is_made_and_signs_in_with_what_was_printed(team):
    said = person("ada", "--team", "nlp", "--role", "viewer")
    password = said.split(" with ")[1].split(" ")[0]
    assert Client().login(username="ada", password=password)
    assert Membership.objects.get(user__username="ada").role == "viewer"
    assert list(AuditEntry.objects.order_by("id").values_list("act", "actor_name")) == [
        ("person.make", ""),
        ("member.add", ""),
    ]
    assert password not in str(list(AuditEntry.objects.values()))


def test_who_is_deactivated_is_out_at_once_and_may_come_back(people, lab):
    session, token = Client(), Token.issue(people.owner, "x")[1]
    session.force_login(people.owner)
    using = Api(Client(), token)
    assert (session.get("/jobs").status_code, using.get("/me").status_code) == (200, 200)
    person("owner", "--deactivate")
    person("owner", "--deactivate")
    assert (session.get("/jobs").status_code, using.get("/me").status_code) == (302, 401)
    assert not Client().login(username="owner", password="owner-has-a-password")
    person("owner", "--activate")
    assert using.get("/me").status_code == 200
    told = AuditEntry.objects.filter(act="person.change").order_by("id").values_list("before", "after")
    assert list(told) == [({"is_active": True}, {"is_active": False}), ({"is_active": False}, {"is_active": True})]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["owner"], "already exists"),
        (["a b"], "letters, digits"),
        (["ci@nlp"], "service accounts"),
        (["a" * 151], "at most 150"),
        (["ada", "--team", "nowhere"], "no such team"),
        (["nobody", "--deactivate"], "check the spelling"),
    ],
)
def test_what_is_wrong_with_a_person_is_said_and_nothing_is_made(people, arguments, words):
    before = User.objects.count()
    with pytest.raises(CommandError, match=words):
        person(*arguments)
    assert (User.objects.count(), AuditEntry.objects.count()) == (before, 0)
    assert not Team.objects.filter(name="nowhere").exists()
