"""`manage.py person` creates, deactivates and reactivates users on the server, and each change is audited."""

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


def test_a_new_person_signs_in_with_the_printed_password(team):
    said = person("ada", "--team", "nlp", "--role", "viewer")
    password = said.split(" with ")[1].split(" ")[0]
    assert Client().login(username="ada", password=password)
    assert Membership.objects.get(user__username="ada").role == "viewer"
    assert list(AuditEntry.objects.order_by("id").values_list("act", "actor_name")) == [
        ("person.make", ""),
        ("member.add", ""),
    ]
    assert password not in str(list(AuditEntry.objects.values()))


def test_a_deactivated_person_loses_access_at_once_and_can_be_reactivated(people, lab):
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


def test_a_name_in_another_script_that_looks_like_one_is_refused(people):
    person("\u0441\u043e\u0440\u0430")  # "сора", Cyrillic
    with pytest.raises(CommandError, match="copa is easily taken for"):
        person("copa")
    person("\u043e\u043b\u044c\u0433\u0430")  # "ольга" is like no other


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["owner"], "already exists"),
        (["a b"], "letters, digits"),
        (["ci@nlp"], "service accounts"),
        (["a" * 151], "at most 150"),
        (["Owner"], "Owner is easily taken for owner"),
        (["\uff4f\uff57\uff4e\uff45\uff52"], "is easily taken for owner"),  # full width
        (["\u043ew\u043fer"], "mixes letters of several scripts"),
        (["ada", "--team", "nowhere"], "no such team"),
        (["nobody", "--deactivate"], "check the spelling"),
    ],
)
def test_an_invalid_request_is_refused_with_its_reason_and_changes_nothing(people, arguments, words):
    before = User.objects.count()
    with pytest.raises(CommandError, match=words):
        person(*arguments)
    assert (User.objects.count(), AuditEntry.objects.count()) == (before, 0)
    assert not Team.objects.filter(name="nowhere").exists()
