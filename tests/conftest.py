"""Fixtures that most tests need: two teams, people with each role, a queue."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.hashers import get_hasher, make_password
from django.core.signals import setting_changed
from django.db.backends.postgresql.operations import DatabaseOperations
from django.dispatch import receiver
from django.test import Client
from hypothesis import HealthCheck, settings

from accounts.models import Membership, Role, Team, User
from agent.build import build
from jobs import clusters
from queues import clusters as known
from queues.models import Queue
from tests.support import servers
from tests.support.builders import Lab
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.site import Site, serve_many, settle

pytest.register_assert_rewrite("tests.support.framework_jobs")
django_db_setup = servers.django_db_setup  # here, because in a plugin it would lose to pytest-django's

# The duration of an example depends on the machine.
settings.register_profile("ours", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")


@receiver(setting_changed)
def adapters_follow_the_setting(*, setting: str, **of_the_signal: Any) -> None:
    """Give no test an adapter of a cluster that another test had under the same name."""
    if setting == "CLUSTERS":
        clusters.adapters.clear()


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent as it is shipped: one zipapp."""
    return build(tmp_path_factory.mktemp("agent") / "agent.pyz")


@pytest.fixture
def control_plane() -> Iterator[FakeControlPlane]:
    """A fake control plane for agents, in this process."""
    control_plane = FakeControlPlane()
    control_plane.up()
    yield control_plane
    control_plane.down()


def _deletes(self, style, tables, *, reset_sequences=False, allow_cascade=False) -> list[str]:
    """In place of TRUNCATE, which makes two new files for each of fifty tables: that took ten times as long."""
    quoted = [self.quote_name(table) for table in tables]
    return ["SET LOCAL session_replication_role = replica", *(f"DELETE FROM {one}" for one in quoted)]


@pytest.fixture(scope="session", autouse=True)
def emptied_by_deletes() -> Iterator[None]:
    """How tests with real transactions leave the database."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "sql_flush", _deletes)
        yield


@dataclass
class People:
    owner: User
    teammate: User
    viewer: User
    stranger: User
    admin: User


def make_user(name: str, **values) -> User:
    return User.objects.create_user(name, password=f"{name}-has-a-password", **values)


@pytest.fixture
def team(db) -> Team:
    return Team.objects.create(name="nlp")


@cache
def hashed(password: str, algorithm: str) -> str:
    return make_password(password, hasher=algorithm)


def unsaved_user(name: str, **values) -> User:
    algorithm = get_hasher().algorithm
    return User(username=name, password=hashed(f"{name}-has-a-password", algorithm), **values)


@pytest.fixture
def people(team) -> People:
    """Two thousand tests begin with these rows: four statements make them."""
    names = ("owner", "teammate", "viewer", "stranger")
    found = People(*(unsaved_user(name) for name in names), admin=unsaved_user("root", is_superuser=True))
    User.objects.bulk_create([found.owner, found.teammate, found.viewer, found.stranger, found.admin])
    other = Team.objects.create(name="vision")
    Membership.objects.bulk_create(
        [
            Membership(user=found.owner, team=team, role=Role.MEMBER),
            Membership(user=found.teammate, team=team, role=Role.MEMBER),
            Membership(user=found.viewer, team=team, role=Role.VIEWER),
            Membership(user=found.stranger, team=other, role=Role.ADMIN),
        ]
    )
    return found


@pytest.fixture
def as_():
    """`as_(people.viewer)` returns a signed-in client."""

    def sign_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def files(settings, tmp_path):
    """Store the logs of this test in a folder of its own."""
    settings.MEDIA_ROOT = tmp_path


@pytest.fixture(autouse=True)
def rows_of_clusters_are_read_once(request, monkeypatch) -> Iterator[None]:
    """Read the clusters that are rows before a test, and again only when one is changed: no count of queries depends on a clock."""
    if "db" in request.fixturenames or "transactional_db" in request.fixturenames:
        request.getfixturevalue("transactional_db" if "transactional_db" in request.fixturenames else "db")
        monkeypatch.setattr(known, "FRESH_SECONDS", 3600.0)
        known.forget()
        known.names()
        yield
        known.forget()
    else:
        yield


@pytest.fixture
def queue(team) -> Queue:
    return Queue.objects.create(name="default", team=team, cluster="local", nominal=8)


@pytest.fixture
def on_pods(queue, settings) -> Queue:
    """The queue on a cluster that makes pods: the fake one, whose own image is `memory`."""
    backend = {"BACKEND": "jobs.clusters.memory.MemoryCluster"}
    settings.CLUSTERS = {**settings.CLUSTERS, queue.cluster: backend}
    return queue


@pytest.fixture
def lab(queue, people) -> Lab:
    return Lab(queue, people.owner)


@pytest.fixture(scope="session")
def shared_site(django_db_setup, django_db_blocker) -> Iterator[Site]:
    """One web process for all tests that need no settings of their own: to start it takes seconds of CPU."""
    with django_db_blocker.unblock(), serve_many() as site:
        yield site


@pytest.fixture
def site(shared_site, transactional_db, people) -> Iterator[Site]:
    yield shared_site
    settle()
