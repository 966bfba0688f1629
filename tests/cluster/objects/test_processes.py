"""Two web processes on machines that share nothing but Postgres, Redis and a bucket; and how files get into the bucket."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from muster import Client

from tests.process.server.conftest import CLUSTERS, ROOT, Database, Server
from tests.process.server.test_starting import answers
from tests.support.patience import until


@pytest.fixture
def database():
    found = Database()
    found.create()
    yield found
    found.drop()


@pytest.fixture
def machine(database, tmp_path):
    """`machine("a")` is a machine with a folder of its own."""

    def made(name: str, **env: str) -> Server:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        found = Server(folder, database)
        found.env |= {"MUSTER_CLUSTERS": CLUSTERS, **env}
        return found

    return made


@contextmanager
def serving(server: Server, token: str):
    with server.start("web", "--host", "127.0.0.1", "--port", str(server.port)):
        until(lambda: answers(server))
        with Client(f"http://127.0.0.1:{server.port}", token) as client:
            yield client


def log(client: Client, job: int) -> list[str]:
    return [line.text for line in client.logs(job)]


def _file(client: Client, token: str, workspace: int, path: str) -> str:
    where = f"{client.url}/api/v1/workspaces/{workspace}/files/{path}"
    answer = httpx.get(where, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    return answer.text


def stored(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.ci(guards=("common/files", "controlplane/operations", "jobs/logs", "workspaces"))
def test_files_move_into_a_bucket_that_machines_share_and_back(machine, server, address, tmp_path):
    first = machine("first")
    assert first.run("migrate")[0] == 0
    filled = subprocess.run(
        [sys.executable, "-m", "tests.process.server.filling"],
        cwd=ROOT,
        env=first.env,
        check=True,
        capture_output=True,
        text=True,
    )
    token = filled.stdout.strip()
    old = tmp_path / "first/data"
    code, said = first.run("move-files")
    assert (code, "MUSTER_OLD_FILES is not set" in said) == (1, True)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print('hello')\n")

    both = {"MUSTER_FILES": address, "MUSTER_OLD_FILES": "folder", "MUSTER_DATA_DIR": str(old)}
    with serving(machine("a", **both), token) as here, serving(machine("b", **both), token) as there:
        failed = next(job for job in here.jobs() if job.name == "failed")
        before = log(here, failed.id)
        assert len(before) > 100 and log(there, failed.id) == before
        workspace = here.upload(tmp_path / "code", queue="a100")
        code, said = machine("a", **both).run("move-files")
        assert (code, "files moved" in said, "nothing is left" in said) == (0, True, True), said
        assert log(here, failed.id) == log(there, failed.id) == before
    assert "files moved" not in machine("a", **both).run("move-files")[1]

    alone = {"MUSTER_FILES": address}
    with serving(machine("c", **alone), token) as here, serving(machine("d", **alone), token) as there:
        assert log(here, failed.id) == log(there, failed.id) == before
        again = there.upload(tmp_path / "code", queue="a100")
        assert again.id == workspace.id
        (tmp_path / "code/more.py").write_text("print('more')\n")
        more = here.upload(tmp_path / "code", queue="a100")
        assert _file(there, token, more.id, "more.py") == "print('more')\n"
    assert stored(tmp_path / "c/data/files") == stored(tmp_path / "d/data/files") == []

    back = {"MUSTER_OLD_FILES": address}
    code, said = machine("back", **back).run("move-files")
    assert (code, "files moved" in said, "nothing is left" in said) == (0, True, True), said
    with serving(machine("back"), token) as client:
        assert log(client, failed.id) == before
        assert _file(client, token, more.id, "more.py") == "print('more')\n"


def test_check_says_what_is_wrong_with_a_bucket(machine, address, server):
    said = machine("a", MUSTER_FILES=address).run("check")[1]
    assert "object storage: files can be written" in said
    wrong = address.replace(f"@{address.partition('@')[2].partition('/')[0]}", "@no-such-bucket")
    code, said = machine("a", MUSTER_FILES=wrong).run("check")
    assert (code, "NoSuchBucket" in said, "docs/object-storage.md" in said) == (1, True, True), said
    assert server.secret_key not in said


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("https://bucket", "must begin with s3://"),
        ("s3://", "is no name of a bucket"),
        ("s3://KEY:se/cret@bucket", "percent-encoded"),
        ("s3://key@bucket/x", "one of key and secret"),
        ("s3://bucket?endpiont=http://x", "endpiont is not a known parameter"),
        ("s3://bucket?endpoint=host:9000", "must be an address"),
    ],
)
def test_a_wrong_address_is_one_line(machine, value, words):
    code, said = machine("a", MUSTER_FILES=value).run("check")
    assert (code, said.count("\n"), words in said) == (1, 1, True), said
    assert "se/cret" not in said
