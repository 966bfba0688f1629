"""The client against the real web process; a proxy counts the bytes that are transferred."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from muster.client import AsyncClient, Client
from muster.errors import Invalid, MusterError, NotFound, WorkspaceError

from accounts.models import Membership, Role, Team, Token
from agent.build import build
from bench.counting import Counter, counting
from jobs.ingest import agent_tokens
from jobs.models import Job, LogSegment
from queues.models import Queue
from tests.support import packs
from tests.support.builders import identity
from tests.support.patience import PATIENCE_SECONDS
from workspaces import reading
from workspaces.models import Blob, Pack, TeamStore, Workspace

pytestmark = pytest.mark.django_db(transaction=True)
FILES = 10_000


@pytest.fixture(autouse=True)
def own_places(monkeypatch, tmp_path, settings):
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MUSTER_CONFIG", str(tmp_path / "config.json"))


@pytest.fixture
def counter(site) -> Iterator[Counter]:
    with counting(site.url) as found:
        yield found


@pytest.fixture
def client(counter, people) -> Iterator[Client]:
    with Client(counter.url, Token.issue(people.owner, "test")[1]) as found:
        yield found


@pytest.fixture
def code(tmp_path) -> Path:
    folder = tmp_path / "code"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "lib" / "größe.py").write_text("")
    (folder / "link").symlink_to("lib")
    return folder


def tree_of(number: int) -> dict[str, tuple[str, bytes | str]]:
    workspace = Workspace.objects.get(pk=number)
    return {
        one.path: (one.kind, reading.content(workspace, one) if one.is_file else one.target)
        for one in reading.entries(workspace)
    }


def test_a_folder_arrives_unchanged(client, code):
    assert tree_of(client.upload(code).id) == {
        "train.py": ("f", b"print('hello')\n"),
        "run.sh": ("x", b"#!/bin/sh\n"),
        "lib/größe.py": ("f", b""),
        "link": ("l", "lib"),
    }


def test_what_the_sender_left_out_is_kept_of_the_newest_submission(client, code):
    (code / ".gitignore").write_text("data/\n")
    for count in (1, 2):
        (code / "data").mkdir(exist_ok=True)
        (code / f"data/{count}.bin").write_bytes(bytes(100))
        number = client.upload(code).id
        assert Workspace.objects.get(pk=number).left_out == [
            {"path": "data/", "files": count, "size": 100 * count, "is_whole": True}
        ]
    assert Workspace.objects.count() == 1


def test_only_the_changed_file_among_ten_thousand_is_sent(client, counter, tmp_path):
    folder = tmp_path / "tree"
    for number in range(FILES):
        if number % 100 == 0:
            (folder / f"package{number // 100:02}").mkdir(parents=True)
        (folder / f"package{number // 100:02}" / f"module{number:05}.py").write_text(f"VALUE = {number}\n" * 20)
    first = client.upload(folder)
    whole = counter.since()
    (folder / "package42" / "module04242.py").write_bytes(content := os.urandom(1000))
    second = client.upload(folder)
    changed = counter.since()
    third = client.upload(folder)
    nothing = counter.since()
    print(f"first {whole} bytes, one file of {len(content)} changed {changed} bytes, nothing changed {nothing} bytes")
    assert changed < len(content) + 1500  # the file, and two requests with their headers
    assert nothing < 600
    assert Workspace.objects.get(pk=second.id).files == FILES
    assert (second.id != first.id, third) == (True, second)
    assert Blob.objects.count() == FILES + 1
    before, after = (set(reading.entries(Workspace.objects.get(pk=one.id))) for one in (first, second))
    assert {one.path for one in after - before} == {"package42/module04242.py"}


def test_an_upload_recovers_when_its_base_was_collected(client, code):
    Workspace.objects.filter(pk=client.upload(code).id).delete()
    (code / "new.py").write_text("new")
    assert set(tree_of(client.upload(code).id)) == {"train.py", "run.sh", "lib/größe.py", "link", "new.py"}


def test_a_folder_is_uploaded_to_two_teams_in_turn(client, code, people, queue):
    Membership.objects.create(user=people.owner, team=Team.objects.get(name="vision"), role=Role.MEMBER)
    Queue.objects.create(name="theirs", team=Team.objects.get(name="vision"), cluster="local", nominal=8)
    for number in range(2):
        for name in ("default", "theirs"):
            (code / "train.py").write_text(f"print({number})")
            assert tree_of(client.upload(code, queue=name).id)["train.py"] == ("f", f"print({number})".encode())
    assert Workspace.objects.count() == 4


def test_files_that_were_collected_are_sent_again(client, code):
    client.upload(code)
    (code / "train.py").rename(code / "main.py")
    Workspace.objects.all().delete()
    Blob.objects.all().delete()
    assert tree_of(client.upload(code).id)["main.py"] == ("f", b"print('hello')\n")


def test_a_folder_over_the_limit_is_refused_with_its_largest_files(client, code, team, monkeypatch):
    TeamStore.objects.create(team=team, workspace_limit_bytes=5000)
    (code / "weights.bin").write_bytes(b"x" * 6000)
    for asks_first in (1, 1 << 30):
        monkeypatch.setattr("muster.code.sending.ASK_BYTES", asks_first)
        with pytest.raises((WorkspaceError, Invalid), match=r"weights\.bin"):
            client.upload(code)
    assert Workspace.objects.count() == 0


def test_a_full_store_is_refused_with_both_numbers(client, code, team):
    TeamStore.objects.create(team=team, store_limit_bytes=10)
    with pytest.raises(MusterError, match="takes 0 of 10 bytes"):
        client.upload(code)


def test_the_async_client_sends_the_same(counter, people, code):
    token = Token.issue(people.owner, "test")[1]

    async def whole() -> tuple[int, int]:
        async with AsyncClient(counter.url, token) as client:
            first = await client.upload(code)
            (code / "train.py").write_text("changed")
            return first.id, (await client.upload(code, progress=lambda sent, total: None)).id

    first, second = asyncio.run(whole())
    assert {path for path, one in tree_of(second).items() if tree_of(first)[path] != one} == {"train.py"}


def test_the_code_of_two_jobs_is_read_and_compared(client, code, queue):
    first = client.submit("torchrun train.py", queue="default", directory=code)
    (code / "train.py").write_text("print('hello')\nprint('more')\n")
    (code / "run.sh").unlink()
    second = client.submit("torchrun train.py", queue="default", directory=code)
    assert [one.path for one in client.files(first)] == ["lib/größe.py", "link", "run.sh", "train.py"]
    assert client.file(first, "train.py") == b"print('hello')\n"
    assert client.file(first, "lib/größe.py") == b""
    found = client.workspace_diff(first, second)
    assert ([one.path for one in found.removed], found.added) == (["run.sh"], ())
    assert (found.changed[0].path, found.changed[0].lines) == (
        "train.py",
        "@@ -1,2 +1,3 @@\n print('hello')\n+print('more')\n ",
    )
    with pytest.raises(NotFound):
        client.file(first, "nosuch.py")


def test_a_long_list_of_files_is_read_completely(client, code, queue, monkeypatch):
    monkeypatch.setattr("muster.jobs.reading.FILES_PAGE", 3)
    job = client.submit("torchrun train.py", queue="default", directory=code)
    assert [one.path for one in client.files(job)] == ["lib/größe.py", "link", "run.sh", "train.py"]


def test_a_pack_is_streamed_to_an_agent_by_the_real_server(client, code, lab, site):
    content = os.urandom(3_000_000)
    (code / "weights").write_bytes(content)
    job = lab.running()
    Job.objects.filter(pk=job.pk).update(workspace=client.upload(code).id)
    headers = {"Authorization": f"Bearer {agent_tokens.issue(identity(job))}"}
    wanted = bytes.fromhex(packs.sha(content) + packs.sha(b"#!/bin/sh\n"))
    with httpx.stream(
        "POST", f"{site.url}/agent/v1/workspace", content=wanted, headers=headers, timeout=PATIENCE_SECONDS
    ) as answer:
        assert answer.headers["transfer-encoding"] == "chunked"
        pieces = list(answer.iter_raw())
    assert packs.unpacked(b"".join(pieces)) == (
        {packs.sha(content): content, packs.sha(b"#!/bin/sh\n"): b"#!/bin/sh\n"},
        {},
    )


@pytest.fixture
def run_replica(lab, site, tmp_path, tmp_path_factory):
    """Runs a real agent with the code of a workspace; returns its status and its folder."""
    pyz = build(tmp_path_factory.mktemp("agent") / "agent.pyz")

    def run(job: Job, command: list[str]) -> tuple[dict, Path]:
        folder = tmp_path / "state" / job.run / "1" / "worker-0"
        folder.mkdir(parents=True)
        (tmp_path / "control.json").write_text(json.dumps({"url": site.url}))
        told = {
            "run": job.run,
            "attempt": job.attempt,
            "role": "worker",
            "index": 0,
            "command": command,
            "mark": job.run,
        }
        told |= {"control": {"file": str(tmp_path / "control.json")}, "cache": str(tmp_path / "cache-of-agents")}
        (folder / "replica.json").write_text(json.dumps({**told, "wants_workspace": True, "grace_seconds": 5}))
        (folder / "token").write_text(agent_tokens.issue(identity(job)))
        subprocess.run([sys.executable, str(pyz), "--state", str(folder)], timeout=PATIENCE_SECONDS, check=False)
        return json.loads((folder / "status.json").read_text()), folder

    return run


def test_a_replica_runs_the_code_that_the_client_sent(client, code, lab, run_replica, tmp_path):
    (code / "run.sh").write_text("#!/bin/sh\ncat link/words\n")
    (code / "lib" / "words").write_text("from the client to the replica")
    job = lab.running()
    Job.objects.filter(pk=job.pk).update(workspace=client.upload(code).id)
    status, folder = run_replica(job, ["./run.sh"])
    assert (status["state"], status["exit_code"]) == ("succeeded", 0)
    assert (folder / "code" / "lib" / "größe.py").read_text() == ""
    assert os.readlink(folder / "code" / "link") == "lib"
    assert LogSegment.objects.filter(job=job).count() == 1
    assert (
        len([path for path in (tmp_path / "cache-of-agents").rglob("*") if path.name != "lock" and path.is_file()]) == 4
    )


def test_a_replica_whose_code_is_lost_fails_with_a_reason(client, code, lab, run_replica):
    job = lab.running()
    Job.objects.filter(pk=job.pk).update(workspace=client.upload(code).id)
    (Path(os.environ["MUSTER_DATA_DIR"]) / "files" / Pack.objects.get().name).unlink()
    status, _ = run_replica(job, ["true"])
    assert status["state"] == "failed"
    assert re.fullmatch(
        r"the workspace cannot be fetched: the file [0-9a-f]{12} cannot be read in the store", status["reason"]
    )


def test_an_interrupted_upload_leaves_nothing(people, team, site):
    token = Token.issue(people.owner, "test")[1]
    content = packs.pack(os.urandom(2_000_000), kind=packs.RAW)
    head = (
        f"POST /api/v1/workspaces/files HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/x-muster-pack\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    before = files_of(team)
    for share in (0, 1, len(content) // 2, len(content) - 1):
        with socket.create_connection(("127.0.0.1", int(site.url.rpartition(":")[2]))) as connection:
            connection.sendall(head.encode() + content[:share])
    with Client(site.url, token) as client:  # answered after the server has read the others
        assert client.me().user == "owner"
    assert (Blob.objects.count(), files_of(team)) == (0, before)


def files_of(team) -> list[str]:
    return sorted(str(path) for path in Path(os.environ["MUSTER_DATA_DIR"]).glob(f"files/workspaces/{team.pk}/*"))
