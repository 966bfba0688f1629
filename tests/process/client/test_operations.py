"""Operations: all of them on the synchronous client, and a few on the other, which runs the same code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from muster.client import AsyncClient, Client
from muster.errors import CutOff, Invalid, MusterError, NotFound, TooManyRequests, Unreachable
from muster.http.wire import Retry
from muster.jobs.follow import lines_of
from muster.jobs.models import Job, LogLine

from tests.process.client.fake import TOKEN, FakeMuster
from tests.process.client.test_sdk import BUSY, asynchronously

SPEC = {"command": ["true"], "queue": "research", "gpus": 8}
# name: its arguments, and a check of its result
USES: dict[str, tuple[tuple[Any, ...], dict[str, Any], Callable[[Any], bool]]] = {
    "login": (("ada",), {"password": "lovelace"}, lambda found: found.token == TOKEN),
    "me": ((), {}, lambda found: found.user == "ada"),
    "job": (("job-1",), {}, lambda found: found.id == 1),
    "cancel": ((1,), {}, lambda found: found.phase == "stopping"),
    "suspend": ((1,), {}, lambda found: found.phase == "stopping"),
    "resume": (("job-1",), {}, lambda found: found.phase == "queued"),
    "priority_effect": ((1, 5), {}, lambda found: (found.effects, found.waiting.position) == (("It is first with 5.",), 1)),
    "set_priority": ((1, 5), {}, lambda found: found.priority == 5),
    "queues": ((), {}, lambda found: [one.name for one in found] == ["research", "closed"]),
    "attempts": ((1,), {}, lambda found: [one.first_failing_rank for one in found] == [3, 3]),
    "replicas": ((1,), {"attempt": 1}, lambda found: [one.index for one in found] == [0, 1]),
    "ranks": (("job-1",), {}, lambda found: found == []),
    "events": ((1,), {}, lambda found: found[0].kind == "submitted"),
    "checkpoints": ((1,), {}, lambda found: [(one.step, one.size_bytes) for one in found] == [(100, 2048), (None, None)]),
    "metrics": ((1,), {"names": ["loss"]}, lambda found: found[0].points[0].value == 0.5),
    "search_logs": ((1, "NEEDLE"), {}, lambda found: [(one.number, one.text) for one in found] == [(2, "a needle")]),
    "plan": ((SPEC,), {}, lambda found: (found.distribution.world_size, found.asked["gpu"], found.roles[0].processes) == (8, 8, 4)),
    "job_fields": ((), {}, lambda found: [(one.name, one.bounds) for one in found] == [("nodes", "1 to 4096"), ("checkpoint_minutes", "1 to 90")]),
    "act_on_many": (("cancel", [1, "job-1"]), {}, lambda found: [one.phase for one in found] == ["stopping"] * 2),
    "resubmit": ((1,), {"idempotency_key": "k"}, lambda found: found.id == 2),
    "delete_log": ((1,), {}, lambda found: found.id == 1),
    "schema": ((), {}, lambda found: found["openapi"] == "3.1.0"),
    "workspaces": ((), {"team": "vision"}, lambda found: [one.digest for one in found] == ["bb"]),
    "workspace": ((5,), {}, lambda found: found.files == 1),
    "files": ((1,), {}, lambda found: [(one.path, one.size) for one in found] == [("train.py", 5)]),
    "file": ((1, "train.py"), {}, lambda found: found == b"hello"),
    "workspace_diff": ((1, "job-1"), {}, lambda found: found.is_empty),
    "queue": (("research",), {}, lambda found: found.nominal == 4),
    "create_queue": (("new",), {"team": "vision", "nominal": 2}, lambda found: found.team == "vision"),
    "ceilings": (("vision",), {}, lambda found: [one.slots for one in found] == [None, 16]),
    "set_ceiling": (("vision", "gpu", 64), {"reason": "nodes"}, lambda found: found.slots == 64),
    "set_queue": (("research",), {"nominal": 9}, lambda found: found.nominal == 9),
    "tokens": ((), {}, lambda found: [one.name for one in found] == ["laptop", "ci"]),
    "create_token": (("x",), {"scope": "read"}, lambda found: (found.text, found.scope) == ("mst_new_and_secret", "read")),
    "revoke_token": ((2,), {}, lambda found: found is None),
    "revoke_own_token": ((), {}, lambda found: found is None),
    "teams": ((), {}, lambda found: [one.role for one in found] == ["admin", "member"]),
    "team": (("vision",), {}, lambda found: found.name == "vision"),
    "create_team": (("new",), {}, lambda found: found.name == "new"),
    "members": (("vision",), {}, lambda found: [one.username for one in found] == ["ada", "bob"]),
    "set_member": (("vision", "eve"), {"role": "viewer"}, lambda found: found.role == "viewer"),
    "remove_member": (("vision", "bob"), {}, lambda found: found is None),
    "service_accounts": (("vision",), {}, lambda found: found[0].is_service_account),
    "create_service_account": (("vision", "b-bot"), {"role": "viewer"}, lambda found: found.username == "b-bot"),
    "remove_service_account": (("vision", "vision-bot"), {}, lambda found: found is None),
    "webhooks": (("vision",), {}, lambda found: [(one.name, one.events) for one in found] == [("chat", ("end",))]),
    "webhook": (("vision", "chat"), {}, lambda found: found.host == "hooks.slack.com"),
    "create_webhook": (("vision", "x"), {"url": "https://x", "events": ["end"]}, lambda found: found.secret == "whsec_new"),
    "set_webhook": (("vision", "chat"), {"is_active": False}, lambda found: not found.is_active),
    "rotate_webhook": (("vision", "chat"), {}, lambda found: found.secret == "whsec_new"),
    "test_webhook": (("vision", "chat"), {}, lambda found: found.id == 3),
    "delete_webhook": (("vision", "chat"), {}, lambda found: found is None),
    "deliveries": (("vision", "chat"), {}, lambda found: [one.status_code for one in found] == [500, 500]),
    "send_again": (("vision", "chat", 2), {}, lambda found: found.message_id == "msg_3"),
    "jobs": ((), {"limit": 1}, lambda found: [one.id for one in found] == [1]),
    "audit": ((), {"actor": "bob"}, lambda found: [one.id for one in found] == [2]),
}  # fmt: skip


def with_a_needle(muster: FakeMuster) -> None:
    number = muster.add_job(phase="running", workspace=5)
    entry = {"path": "train.py", "kind": "file", "size": 5, "digest": "aa", "executable": False, "target": ""}
    muster.files["aa"] = b"hello"
    muster.workspaces["bb"] = {"train.py": entry}
    for text in ("hay", "hay", "a needle"):
        muster.say(number, text)


LISTS = ("jobs", "workspaces", "deliveries", "audit")
# Longer stories, told in test_sdk.py, test_sending.py and below.
TOLD_ELSEWHERE = {
    "close",
    "submit",
    "upload",
    "wait",
    "logs",
    "log_pages",
    "log_page",
    "log_text",
    "follow",
    "follow_pages",
    # Against a real server, in tests/db/client/test_client_is_complete.py.
    *("team_secrets", "team_secret", "create_team_secret", "set_team_secret", "delete_team_secret"),
    *("volumes", "volume", "create_volume", "set_volume", "delete_volume"),
    *("queue_versions", "allowed_objects", "allow_object", "forbid_object"),
    *("clusters", "cluster", "add_cluster", "set_cluster", "remove_cluster", "check_cluster"),
    *("team_namespaces", "bind_namespace", "release_namespace"),
    *("cluster_nodes", "cluster_node"),
    *("cluster_events",),
    *("check_pods", "pod_check"),  # on real pods, in tests/cluster/node/test_probe.py
    *("excluded_nodes", "suspected_nodes", "exclude_node", "readmit_node"),
    *("flavors", "make_flavor", "remove_flavor", "cohorts", "set_cohort", "remove_cohort"),
    *("quotas", "set_quota", "remove_quota", "usage"),
    *("quota_requests", "ask_for_quota", "decide_quota", "withdraw_quota"),
}
# One request, one by name, no result, a body, raw bytes, a loop of requests, a list.
ON_THE_ASYNC_CLIENT = ("me", "job", "revoke_own_token", "plan", "file", "search_logs", "audit")


def test_each_operation_is_used_here_or_elsewhere() -> None:
    assert set(USES) | TOLD_ELSEWHERE == {name for name in dir(Client) if not name.startswith("_")}


@pytest.mark.parametrize("name", USES)
def test_each_operation_returns_what_the_server_answers(name: str, client: Client, logged_in: FakeMuster) -> None:
    args, options, is_right = USES[name]
    with_a_needle(logged_in)
    told = getattr(client, name)(*args, **options)
    assert is_right(list(told) if name in LISTS else told)


@pytest.mark.parametrize("name", ON_THE_ASYNC_CLIENT)
def test_the_async_client_returns_the_same(name: str, logged_in: FakeMuster) -> None:
    args, options, is_right = USES[name]
    with_a_needle(logged_in)

    async def asked(client: AsyncClient) -> Any:
        answer = getattr(client, name)(*args, **options)
        return [item async for item in answer] if name in LISTS else await answer

    assert is_right(asynchronously(asked))


def test_refusals_carry_their_problems(client: Client) -> None:
    with pytest.raises(Invalid) as caught:
        client.plan({"queue": "nowhere", "command": ["true"]})

    (problem,) = caught.value.problems
    assert (problem.field, problem.value, problem.message) == ("queue", "nowhere", "no such queue")


@pytest.mark.parametrize("fault", ["drop", (503, {}, {})])
def test_calls_that_change_something_are_not_repeated(fault: Any, client: Client, logged_in: FakeMuster) -> None:
    for change in (
        lambda: client.create_token("x"),
        lambda: client.act_on_many("cancel", [1]),
        lambda: client.resubmit(1),
        lambda: client.remove_member("vision", "bob"),
    ):
        logged_in.faults, logged_in.requests = [fault], []
        with pytest.raises(MusterError):
            change()
        assert len(logged_in.requests) == 1


@pytest.mark.parametrize("fault", ["drop", (503, {}, {})])
def test_idempotent_calls_are_retried(fault: Any, client: Client, logged_in: FakeMuster) -> None:
    logged_in.add_job()
    for ask in (
        lambda: client.resubmit(1, idempotency_key="once"),
        lambda: client.set_member("vision", "eve", role="viewer"),
        lambda: client.set_queue("research", nominal=5),
        lambda: client.plan(SPEC),
        lambda: client.tokens(),
    ):
        logged_in.faults = [fault, fault]
        ask()


def test_retry_after_is_respected(logged_in: FakeMuster) -> None:
    rests: list[float] = []
    told: list[Retry] = []
    logged_in.faults = [(429, {}, {"Retry-After": "7"})] * 2
    with Client(logged_in.url, TOKEN, sleep=rests.append, on_retry=told.append) as client:
        assert client.me().user == "ada"
        logged_in.faults = [(429, {"detail": "slow down"}, {"Retry-After": "3600"})]
        with pytest.raises(TooManyRequests, match="slow down: wait a minute"):
            client.me()

    assert rests == [7.0, 7.0]
    assert [retry.pause_seconds for retry in told] == [7.0, 7.0]


def test_bulk_actions_are_split_into_several_calls(client: Client, logged_in: FakeMuster) -> None:
    for _ in range(130):
        logged_in.add_job(phase="running")

    done = client.act_on_many("suspend", list(range(1, 132)))

    assert [one.is_refused for one in done] == [False] * 130 + [True]
    assert done[-1].problem == "Not found."
    assert logged_in.paths("POST") == ["/api/v1/jobs/bulk"] * 2


def test_following_survives_minutes_without_a_server_and_loses_no_line(logged_in: FakeMuster) -> None:
    """The server is down twice, for minutes in total; every line arrives exactly once."""
    number = logged_in.add_job(phase="running")
    outage = [("drop", (502, "<html>", {}), (500, {}, {}), (503, {}, {}))[at % 4] for at in range(40)]
    said = [str(at) for at in range(60)]
    for text in said:
        logged_in.say(number, text)
    logged_in.page_lines, slept = 7, []

    with Client(logged_in.url, TOKEN, sleep=slept.append) as client:
        heard: list[LogLine | Job] = []
        for item in client.follow(number):
            heard.append(item)
            if len(heard) == 10:
                logged_in.faults = list(outage)
            if len(heard) == 40:
                logged_in.change(number, phase="succeeded")
                logged_in.faults = list(outage)

    assert [item.text for item in heard if isinstance(item, LogLine)] == said
    assert isinstance(heard[-1], Job) and heard[-1].phase == "succeeded"
    assert sum(slept) > 2 * 60


def test_following_gives_up_on_a_server_that_stays_down(logged_in: FakeMuster) -> None:
    number, slept = logged_in.add_job(phase="running"), []
    logged_in.faults = ["drop"] * 1000

    with Client(logged_in.url, TOKEN, sleep=slept.append) as client, pytest.raises(Unreachable):
        list(client.follow(number))
    assert 300 <= sum(slept) < 320


def test_the_async_client_follows_too(logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="running")
    logged_in.say(number, "one")
    logged_in.script = [lambda muster, job: None, lambda muster, job: muster.change(job, phase="failed")]

    async def heard(client: AsyncClient) -> list[str]:
        return [item.phase if isinstance(item, Job) else item.text async for item in client.follow("job-1")]

    assert asynchronously(heard) == ["running", "one", "failed"]


def test_a_log_continues_from_the_cursor_of_another_reader(client: Client, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="running")
    for text in "abc":
        logged_in.say(number, text)
    page = client.log_page(number, tail=2)
    logged_in.say(number, "d")

    assert [line.text for line in page.lines] == ["b", "c"]
    assert [line.text for line in client.logs(number, cursor=page.cursor)] == ["d"]
    assert [line.text for line in client.logs(number, attempt=2)] == []
    assert list(lines_of(page)) == list(page.lines)


def test_a_long_search_is_requested_in_parts(client: Client, logged_in: FakeMuster) -> None:
    number = logged_in.add_job()
    for at in range(25):
        logged_in.say(number, f"needle {at}")

    found = client.search_logs(number, "needle", limit=12)

    assert [line.number for line in found] == list(range(12))
    assert [seen["query"].get("start") for seen in logged_in.requests] == [None, "5", "10"]


def test_the_whole_log_as_text_comes_in_pieces(client: Client, logged_in: FakeMuster) -> None:
    with_a_needle(logged_in)

    assert "".join(client.log_text(1)) == "rank 0: hay\nrank 0: hay\nrank 0: a needle\n"
    with pytest.raises(NotFound):
        list(client.log_text(99))


def test_a_truncated_text_is_an_error(client: Client, logged_in: FakeMuster) -> None:
    with_a_needle(logged_in)
    logged_in.faults = ["cut"]

    with pytest.raises(CutOff, match="in the middle of a response: try again"):
        list(client.log_text(1))


@pytest.mark.parametrize("fault", ["cut", "drop", BUSY])
def test_a_broken_stream_continues_where_it_stopped(fault: Any, client: Client, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="succeeded")
    for at in range(30):
        logged_in.say(number, str(at))
    logged_in.page_lines, logged_in.faults = 4, [None, *[fault] * 5]

    assert [line.text for line in client.logs(number, follow=True)] == [str(at) for at in range(30)]
    assert not [path for path in logged_in.paths("GET") if path.endswith("/logs")]


def test_the_async_client_streams_and_polls(logged_in: FakeMuster) -> None:
    with_a_needle(logged_in)
    logged_in.change(1, phase="succeeded")

    async def read(client: AsyncClient) -> tuple[list[str], str]:
        lines = [line.text async for line in client.logs("job-1", follow=True)]
        return lines, "".join([piece async for piece in client.log_text(1)])

    for logged_in.has_streams in (True, False):
        logged_in.faults = [None, None, "cut"]
        lines, text = asynchronously(read)
        assert (lines, text.count("\n")) == (["hay", "hay", "a needle"], 3)


def test_a_missing_object_is_an_error_with_a_remedy(client: Client) -> None:
    with pytest.raises(NotFound, match="no job 99 that you may see: `muster jobs` lists them"):
        client.attempts(99)
