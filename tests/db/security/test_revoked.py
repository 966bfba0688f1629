"""Revoking access also ends what is already open: streams and long polls end with the token, session, user or
membership that opened them; through Redis by a hint, and without Redis by a check every few seconds.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import httpx
import pytest
from django.core.management import call_command

from accounts import access, members, people, tokens
from accounts.models import Membership, SignIn, Token, User
from accounts.signin import session_list
from common.signals import hints
from tests.support.patience import PATIENCE_SECONDS
from tests.support.site import Site, serve_many

NO_REDIS = "redis://127.0.0.1:1/0"  # nothing listens there


@pytest.fixture(scope="module", params=["by a hint", "without Redis"])
def shared_site(django_db_setup, django_db_blocker, request) -> Iterator[Site]:
    redis = os.environ["REDIS_URL"] if request.param == "by a hint" else NO_REDIS
    with django_db_blocker.unblock(), serve_many(REDIS_URL=redis) as site:
        yield site


def read_to_end(stream: httpx.Response) -> threading.Thread:
    """Returns a thread that ends when the stream does: closed by the server, or by the test at its end."""

    def read() -> None:
        with suppress(httpx.TransportError):
            for _ in stream.iter_bytes():
                pass

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def bearer(site: Site, text: str) -> httpx.Client:
    return httpx.Client(base_url=site.url, headers={"Authorization": f"Bearer {text}"}, timeout=PATIENCE_SECONDS)


class Open:
    """All streams that one person may have open, by session and by token, and one of a colleague."""

    def __init__(self, site: Site, lab: Any, user: User, other: User, stack: ExitStack):
        self.job, self.user = lab.running(), user
        self.token, text = Token.issue(user, "stream")
        self.browser = stack.enter_context(closing(site.sign_in(user.username)))
        self.session = SignIn.objects.get(user=user)
        program = stack.enter_context(closing(bearer(site, text)))
        colleague = stack.enter_context(closing(bearer(site, Token.issue(other, "stream")[1])))
        log = f"/api/v1/jobs/{self.job.pk}/logs/stream"
        opened = {
            "hints, by session": (self.browser, "/live"),
            "log, by session": (self.browser, log),
            "log, by token": (program, log),
            "log of a colleague": (colleague, log),
        }
        self.ends = {
            name: read_to_end(stack.enter_context(client.stream("GET", path)))
            for name, (client, path) in opened.items()
        }

    def assert_end(self, *words: str) -> None:
        """Streams whose names contain one of the words end; the others are still open."""
        ending = {name for name in self.ends if any(word in name for word in words)}
        for name in ending:
            self.ends[name].join(PATIENCE_SECONDS)
        assert {name for name, thread in self.ends.items() if not thread.is_alive()} == ending


def revoke_token(opened: Open, admin: User) -> None:
    tokens.revoke(token=opened.token, by=opened.user)


def end_session(opened: Open, admin: User) -> None:
    assert session_list.end(opened.user, session_list.ref_of(opened.session.session_key))


def sign_out(opened: Open, admin: User) -> None:
    page = opened.browser.get("/account").text
    assert opened.browser.post("/logout", data={"csrfmiddlewaretoken": opened.browser.cookies["csrftoken"]}).is_redirect
    assert page


def give_password(opened: Open, admin: User) -> None:
    people.give_password(username=opened.user.username)


def deactivate(opened: Open, admin: User) -> None:
    call_command("person", opened.user.username, "--deactivate")


def remove_from_team(opened: Open, admin: User) -> None:
    members.remove(team=opened.job.team, username=opened.user.username, by=admin)


@pytest.mark.parametrize(
    ("act", "ending"),
    [
        (revoke_token, ["by token"]),
        (end_session, ["by session"]),
        (sign_out, ["by session"]),
        (give_password, ["by session"]),
        (deactivate, ["by session", "by token"]),
        (remove_from_team, ["by session", "by token"]),
    ],
)
def test_streams_end_with_the_credentials_that_opened_them(
    site, lab, people, act: Callable[[Open, User], None], ending
):
    with ExitStack() as stack:
        opened = Open(site, lab, people.teammate, people.owner, stack)
        act(opened, people.admin)
        opened.assert_end(*ending)


def test_a_long_poll_for_log_lines_ends_with_its_token(site, lab, people):
    job = lab.running()
    token, text = Token.issue(people.viewer, "wait")
    with closing(bearer(site, text)) as client, client.stream("GET", f"/api/v1/jobs/{job.pk}/logs?wait=20") as answer:
        assert answer.status_code == 200
        tokens.revoke(token=token, by=people.viewer)
        assert json.loads(answer.read())["lines"] == []
        assert client.get(f"/api/v1/jobs/{job.pk}").status_code == 401


# -- the check itself


def accesses(user: User, session: str, teams: frozenset[int] | None) -> dict[str, access.Access]:
    by_token = User.objects.get(pk=user.pk)
    by_token.grant = Token.issue(user, "x")[0].grant
    return {
        "session": access.Access.of(user, session=session, teams=teams),
        "token": access.Access.of(by_token, session=session, teams=teams),
    }


def expire(found: access.Access) -> None:
    Token.objects.filter(pk=found.token).update(expires_at="2020-01-01T00:00Z")
    SignIn.objects.filter(session_key=found.session).update(expire_date="2020-01-01T00:00Z")


def change_password(found: access.Access) -> None:
    user = User.objects.get(pk=found.user)
    user.set_password("another long enough secret")
    user.save()


@pytest.mark.parametrize("way", ["session", "token"])
@pytest.mark.parametrize(
    ("change", "ends"),
    [
        (lambda found: None, set()),
        (expire, {"session", "token"}),
        (lambda found: User.objects.filter(pk=found.user).update(is_active=False), {"session", "token"}),
        (lambda found: User.objects.filter(pk=found.user).delete(), {"session", "token"}),
        (lambda found: Membership.objects.filter(user=found.user).delete(), {"session", "token"}),
        (change_password, {"session"}),
        (lambda found: SignIn.objects.all().delete(), {"session"}),
        (lambda found: Token.objects.filter(user=found.user).delete(), {"token"}),
    ],
)
def test_access_holds_until_one_of_its_preconditions_is_gone(as_, people, team, way, change, ends):
    session = as_(people.viewer).session.session_key
    found = accesses(people.viewer, session, frozenset({team.pk}))[way]
    assert found.holds()
    change(found)
    assert found.holds() is (way not in ends)


def test_access_to_all_teams_ends_with_the_role_of_platform_administrator(as_, people):
    found = accesses(people.admin, as_(people.admin).session.session_key, None)["session"]
    assert found.holds()
    User.objects.filter(pk=people.admin.pk).update(is_superuser=False)
    assert not found.holds()


def test_a_session_of_another_user_gives_no_access(as_, people, team):
    session = as_(people.owner).session.session_key
    assert not access.Access.of(people.viewer, session=session, teams=frozenset({team.pk})).holds()
    assert not access.Access.of(people.viewer, session=None, teams=frozenset({team.pk})).holds()


def test_a_hint_about_access_reaches_only_the_streams_of_that_user():
    hub = hints.Hub()
    mine, theirs = (hints.Listener(None, access.Access(user, None, session="x")) for user in (1, 2))
    for one in (mine, theirs):
        one.forget()
        one.is_doubtful = False
        hub.listeners.add(one)
    hub.dispatch(b'{"access": 1}')
    assert (mine.is_doubtful, theirs.is_doubtful) == (True, False)
    assert (mine.news.is_set(), theirs.news.is_set()) == (True, False)
