"""The SDK against a real server, sync and async."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from muster.client import AsyncClient, Client
from muster.errors import Invalid, MusterError, NotFound, Unauthorized, Unreachable, WaitTimeout
from muster.jobs.models import Job

from tests.process.client.fake import TOKEN, FakeMuster

T = TypeVar("T")
BUSY = (503, {"title": "Busy"}, {})


async def _no_pause(seconds: float) -> None:
    await asyncio.sleep(0)


def asynchronously(action: Callable[[AsyncClient], Awaitable[T]]) -> T:
    async def whole() -> T:
        async with AsyncClient(sleep=_no_pause) as client:
            return await action(client)

    return asyncio.run(whole())


def finish(muster: FakeMuster, number: int) -> None:
    muster.change(number, phase="succeeded")


def test_a_submission_packs_uploads_and_sends_only_what_was_given(
    client: Client, logged_in: FakeMuster, code: Path
) -> None:
    job = client.submit(["torchrun", "train.py"], queue="research", directory=code, nodes=2, env={"A": "1"})

    assert (job.phase, job.command, job.nodes, job.workspace) == ("queued", ("torchrun", "train.py"), 2, 5)
    assert logged_in.requests[-1]["body"] == (
        b'{"command":["torchrun","train.py"],"queue":"research","nodes":2,"env":{"A":"1"},"workspace":5}'
    )


def test_the_queue_decides_the_team_of_the_code(client: Client, logged_in: FakeMuster, code: Path) -> None:
    client.submit("true", queue="research", directory=code)
    client.upload(code)

    lists = [seen for seen in logged_in.requests if seen["path"] == "/api/v1/workspaces"]
    sent = [seen for seen in logged_in.requests if seen["path"] == "/api/v1/workspaces/files"]
    assert [seen["json"].get("queue") for seen in lists] == ["research", None]
    assert [seen["query"] for seen in sent] == [{"queue": "research"}]


def test_the_same_folder_is_one_workspace(client: Client, logged_in: FakeMuster, code: Path) -> None:
    first, second = client.upload(code), client.upload(code)

    assert first == second
    assert len(logged_in.workspaces) == 1


def test_code_can_be_omitted_or_given_by_id(client: Client, logged_in: FakeMuster) -> None:
    assert client.submit("true", queue="research", directory=None).workspace is None
    assert client.submit("true", queue="research", workspace=5).workspace == 5
    assert logged_in.workspaces == {}


@pytest.mark.parametrize("fault", [BUSY, "drop", "lose"])
def test_a_retried_submission_makes_one_job(fault: object, client: Client, logged_in: FakeMuster) -> None:
    logged_in.faults = [fault, fault]

    job = client.submit("true", queue="research", directory=None)

    assert list(logged_in.jobs) == [job.id]
    assert logged_in.paths("POST") == ["/api/v1/jobs"] * 3
    assert len({seen["headers"]["Idempotency-Key"] for seen in logged_in.requests}) == 1


def test_two_submissions_have_different_keys(client: Client, logged_in: FakeMuster) -> None:
    for _ in range(2):
        client.submit("true", queue="research", directory=None)

    assert len(logged_in.keys) == 2


def test_an_upload_is_retried_because_it_is_idempotent(client: Client, logged_in: FakeMuster, code: Path) -> None:
    logged_in.faults = ["lose"]

    assert client.upload(code).id == 5


def test_an_action_is_not_retried(client: Client, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="running")
    logged_in.faults = ["drop"]

    with pytest.raises(Unreachable, match="lost the connection"):
        client.cancel(number)
    assert len(logged_in.requests) == 1


def test_retries_end_if_the_server_stays_busy(client: Client, logged_in: FakeMuster) -> None:
    logged_in.faults = [BUSY] * 9

    with pytest.raises(MusterError, match="Busy: try again"):
        client.me()
    assert len(logged_in.requests) == 5


def test_a_job_is_found_by_id_or_as_the_newest_of_its_name(client: Client, logged_in: FakeMuster) -> None:
    logged_in.add_job(name="train")
    newest = logged_in.add_job(name="train")
    logged_in.add_job(name="other")

    assert client.job("train").id == newest
    assert client.job("1").id == client.job(1).id == client.job(client.job(1)).id == 1
    with pytest.raises(NotFound, match="no job named trian that you may see: `muster jobs` lists them"):
        client.job("trian")
    with pytest.raises(NotFound, match="no job 99 that you may see"):
        client.job(99)


def test_jobs_are_read_page_by_page_and_never_from_another_host(client: Client, logged_in: FakeMuster) -> None:
    for _ in range(230):
        logged_in.add_job(queue="research")
    logged_in.add_job(queue="other")

    assert [job.id for job in client.jobs(queue="research", limit=3)] == [230, 229, 228]
    assert len(logged_in.requests) == 1
    assert len(list(client.jobs())) == 231
    assert [job.id for job in client.jobs(limit=150)][-1] == 82


def test_actions_return_the_job(client: Client, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="running")

    assert client.suspend(number).phase == "stopping"
    assert client.resume("job-1").phase == "queued"
    assert client.cancel(client.job(number)).phase == "stopping"
    assert client.resubmit(number).id == 2


def test_logs_without_follow_return_the_present_lines(client: Client, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="running")
    logged_in.page_lines = 2
    for at in range(5):
        logged_in.say(number, f"line {at}", rank=at % 2)

    assert [line.text for line in client.logs(number)] == [f"line {at}" for at in range(5)]
    assert [line.text for line in client.logs(number, rank=1)] == ["line 1", "line 3"]
    assert [line.text for line in client.logs(number, tail=2)] == ["line 3", "line 4"]


@pytest.mark.parametrize("has_streams", [True, False])
def test_following_a_log_ends_with_the_job(has_streams: bool, client: Client, logged_in: FakeMuster) -> None:
    number, logged_in.has_streams = logged_in.add_job(phase="running"), has_streams
    logged_in.script = [
        lambda muster, job: muster.say(job, "one"),
        lambda muster, job: None,
        lambda muster, job: muster.say(job, "two"),
        finish,
    ]

    assert [line.text for line in client.logs(number, follow=True)] == ["one", "two"]
    polls = [seen["query"] for seen in logged_in.requests if seen["path"].endswith("/logs")]
    assert [query.get("wait") for query in polls] == ([] if has_streams else [None, "10", "10", "10"])


def test_following_a_suspended_job_ends(client: Client, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="running")
    logged_in.script = [
        lambda muster, job: muster.say(job, "one"),
        lambda muster, job: muster.change(job, phase="suspended"),
        lambda muster, job: muster.say(job, "a late one"),
    ]

    assert [line.text for line in client.logs(number, follow=True)] == ["one", "a late one"]
    assert [seen.phase for seen in client.follow(number) if isinstance(seen, Job)][-1] == "suspended"


def test_following_from_the_end_loses_no_line_while_the_stream_is_broken(client: Client, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="running")
    logged_in.say(number, "long ago")
    logged_in.script = [lambda muster, job: None, lambda muster, job: muster.say(job, "just now"), finish]

    assert [line.text for line in client.logs(number, follow=True, tail=0)] == ["just now"]


def test_following_survives_a_restart_of_the_server(client: Client, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="succeeded")
    logged_in.say(number, "one")
    logged_in.page_lines = 1
    lines = client.logs(number, follow=True)
    logged_in.faults = [*[BUSY] * 2, "drop"]

    assert [line.text for line in lines] == ["one"]


def test_waiting_ends_with_the_job_or_at_its_timeout(client: Client, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="running")

    with pytest.raises(WaitTimeout, match=r"job 1 is still running after 0.01 s: wait again, or cancel it"):
        client.wait(number, timeout=0.01)
    finish(logged_in, number)
    assert client.wait(number).phase == "succeeded"


def test_the_other_parts_of_a_job_are_returned(client: Client, logged_in: FakeMuster) -> None:
    number = logged_in.add_job()
    logged_in.ranks[number] = [{"rank": 0, "state": "running", "attempt": 1}]

    assert [rank.state for rank in client.ranks(number)] == ["running"]
    assert [event.kind for event in client.events("job-1")] == ["submitted"]
    assert client.metrics(number)[0].points[0].value == 0.5
    assert [queue.name for queue in client.queues()] == ["research", "closed"]
    assert client.me().user == "ada"


def test_a_refusal_is_an_error_with_its_fields(client: Client) -> None:
    with pytest.raises(Invalid) as caught:
        client.submit("true", queue="nowhere", directory=None)

    assert (caught.value.status, caught.value.problems[0].field) == (400, "queue")


def test_a_client_can_be_configured_by_arguments_alone(muster: FakeMuster) -> None:
    with Client(muster.url, TOKEN) as client:
        assert client.login("ada", password="lovelace").token == TOKEN
        assert client.me().user == "ada"
    with Client(muster.url, "wrong") as client, pytest.raises(Unauthorized, match="run `muster login http://127"):
        client.me()


def test_the_async_client_does_the_same(logged_in: FakeMuster, code: Path) -> None:
    async def whole(client: AsyncClient) -> list[object]:
        job = await client.submit("true", queue="research", directory=code)
        logged_in.say(job.id, "hello")
        logged_in.script = [lambda muster, number: None, finish]
        lines = [line.text async for line in client.logs(job, follow=True)]
        jobs = [seen.id async for seen in client.jobs(limit=1)]
        done = await client.wait("job-1", timeout=5)
        me, queues = await client.me(), await client.queues()
        return [job.workspace, lines, jobs, done.phase, me.user, len(queues), (await client.resubmit(job)).id]

    assert asynchronously(whole) == [5, ["hello"], [1], "succeeded", "ada", 2, 2]


def test_the_async_client_retries_waits_and_fails_like_the_other(logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="running")
    logged_in.faults = [BUSY, "drop"]

    assert asynchronously(lambda client: client.job(number)).id == number
    with pytest.raises(WaitTimeout):
        asynchronously(lambda client: client.wait(number, timeout=0.01))
    with pytest.raises(NotFound, match="no job 99"):
        asynchronously(lambda client: client.cancel(99))
    assert asynchronously(lambda client: client.suspend(number)).phase == "stopping"
    assert asynchronously(lambda client: client.metrics(number))[0].name == "loss"


def test_a_login_sends_no_token(client: Client, logged_in: FakeMuster) -> None:
    client.login("ada", password="lovelace", code="123456")

    (sent,) = logged_in.requests
    assert "Authorization" not in sent["headers"]
    assert json.loads(sent["body"]) == {"username": "ada", "password": "lovelace", "name": "SDK", "code": "123456"}
