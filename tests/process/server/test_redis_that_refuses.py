"""A Redis that refuses, at start and later: each process goes on, says why in one line, and uses it again."""

import contextlib
import re
import time

import httpx
import pytest

from tests.process.server.conftest import CLUSTERS
from tests.process.server.redis_that_refuses import PASSWORD, redis_that_refuses
from tests.support.patience import until

pytestmark = pytest.mark.ci

REFUSALS = {
    "WRONGPASS": "it refuses the user or the password of REDIS_URL",
    "NOPERM": "it does not let the user of REDIS_URL do what Muster needs: ACL SETUSER NAME on ~* &* +@all",
    "READONLY": "it is a replica, which takes no changes: REDIS_URL must name the primary",
}
TROUBLE = "Redis cannot be used, so jobs start some seconds later and pages are updated less often: "
# The end of a connection, noticed while it was read, or written.
CLOSED = {"Connection closed by server. (REDIS_URL)", "[Errno 104] Connection reset by peer (REDIS_URL)"}
OVER = "Redis can be used again"
REPEAT_SECONDS = 60
SOAK = pytest.mark.soak(guards=("controlplane/broker.py", "common/signals"))
PEOPLE = """
import django
django.setup()
from accounts.models import Membership, Role, Team, Token, User
from queues.models import Queue
team = Team.objects.create(name="nlp")
user = User.objects.create_user("ann", password="a-password-of-ann")
Membership.objects.create(user=user, team=team, role=Role.MEMBER)
Queue.objects.create(name="default", team=team, cluster="memory", nominal=8)
print(Token.issue(user, "x", scope="manage")[1])
"""


def submit(server, token: str) -> int:
    sent = httpx.post(
        f"http://127.0.0.1:{server.port}/api/v1/jobs", timeout=60, headers={"Authorization": f"Bearer {token}"},
        json={"queue": "default", "framework": "plain", "command": ["true"]},
    )  # fmt: skip
    assert sent.status_code == 201, sent.text
    return sent.json()["id"]


def is_up(server) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{server.port}/healthz", timeout=10).status_code == 200
    return False


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param("WRONGPASS", "READONLY", marks=SOAK),
        pytest.param("READONLY", "NOPERM", marks=SOAK),
        ("NOPERM", "WRONGPASS"),
    ],
)
def test_processes_go_on_say_why_and_use_it_again(server, database, tmp_path, first, then):
    database.create_with_tables()
    token = server.execute("-c", PEOPLE).strip()
    began = time.monotonic()
    with redis_that_refuses(tmp_path) as redis:
        env = {"REDIS_URL": redis.url, "MUSTER_CLUSTERS": CLUSTERS}
        redis.refuse(first)
        with (
            server.start("web", "--host", "127.0.0.1", "--port", str(server.port), **env) as web,
            server.start("tasks", **env) as tasks,
            server.start("beat", **env) as beat,
        ):
            until(lambda: is_up(server))
            for times, how in enumerate((first, then), 1):
                if how == then:
                    redis.refuse(how)
                job = submit(server, token)
                for process in (web, tasks, beat):
                    process.until_said(TROUBLE + REFUSALS[how])
                # The sweeper launches it all the same.
                until(
                    lambda job=job: database.run(f"SELECT 1 FROM jobs_job WHERE id = {job} AND applied_at IS NOT NULL")
                )
                redis.accept()
                for process in (tasks, beat):  # beat sends, and tasks takes
                    until(lambda process=process, times=times: process.said.count(OVER) == times)
                until(lambda times=times: submit(server, token) and web.said.count(OVER) == times)
            repeated = int((time.monotonic() - began) / REPEAT_SECONDS)
            for process in (web, tasks, beat):
                said = process.said
                assert process.is_running() and "Traceback" not in said and PASSWORD not in said, said
                told = re.findall(f"{TROUBLE}(.*)", said)
                # Whether a process noticed the end of its connection depends on what it just did.
                assert set(told) - CLOSED == {REFUSALS[first], REFUSALS[then]}, told
                assert len(told) <= 3 + 3 * repeated, said
                assert len([one for one in said.splitlines() if "edis" in one]) < 10 + 2 * repeated, said
