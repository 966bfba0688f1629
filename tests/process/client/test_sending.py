"""Uploading a folder: only content that the server lacks, and only content as it was read."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from muster.client import AsyncClient, Client
from muster.code import contents, memory, sending
from muster.code.progress import Upload
from muster.errors import NotFound, WorkspaceError

from tests.process.client.fake import FakeMuster, problem
from tests.process.client.test_workspace import as_nobody
from tests.support import packs


def trees(muster: FakeMuster) -> list[dict[str, bytes | str]]:
    """Return the files that a job would get, for each workspace."""
    return [
        {path: muster.files[one["digest"]] if one["kind"] == "file" else one["target"] for path, one in tree.items()}
        for tree in muster.workspaces.values()
    ]


def steps(muster: FakeMuster) -> list[str]:
    """Return the requests about code since the last call, and clear them."""
    seen = [one["path"].removeprefix("/api/v1/workspaces") for one in muster.requests if "/workspaces" in one["path"]]
    muster.requests.clear()
    return seen


def settle(folder: Path) -> None:
    """Make files look old. The change time cannot be set, so the rule about it is relaxed in the fixture below."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (1_700_000_000, 1_700_000_000))


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SETTLED_NS", -60_000_000_000)


def test_the_first_upload_sends_everything_and_later_ones_only_changes(
    client: Client, logged_in: FakeMuster, code: Path
) -> None:
    (code / "lib").mkdir()
    (code / "lib" / "net.py").write_text("class Net: ...")
    (code / "link").symlink_to("lib")
    client.upload(code)
    assert steps(logged_in) == ["/missing", "/files", ""]
    client.upload(code)
    assert steps(logged_in) == [""]
    (code / "lib" / "net.py").write_text("class Net: pass")
    (code / "train.py").unlink()
    client.upload(code)
    sent = [one for one in logged_in.requests if one["path"].endswith("/files")]
    assert packs.unpacked(sent[0]["body"])[0] == {packs.sha(b"class Net: pass"): b"class Net: pass"}
    assert [(one["path"], kept) for one in logged_in.requests[-1]["json"]["set"] for kept in [one["kind"]]] == [
        ("lib/net.py", "file")
    ]
    assert logged_in.requests[-1]["json"]["remove"] == ["train.py"]
    assert steps(logged_in) == ["/files", ""]
    assert trees(logged_in)[-1] == {"lib/net.py": b"class Net: pass", "link": "lib"}


def test_a_renamed_file_is_not_sent_again(client: Client, logged_in: FakeMuster, code: Path) -> None:
    client.upload(code)
    steps(logged_in)
    (code / "train.py").rename(code / "main.py")
    client.upload(code)
    assert steps(logged_in) == [""]
    assert list(trees(logged_in)[-1]) == ["main.py"]


def test_files_with_equal_content_are_sent_once(client: Client, logged_in: FakeMuster, code: Path) -> None:
    for number in range(5):
        (code / f"{number}.py").write_text("the same")
    client.upload(code)
    (sent,) = (one for one in logged_in.requests if one["path"].endswith("/files"))
    assert len(packs.unpacked(sent["body"])[0]) == 2


def test_an_execute_bit_is_a_change(client: Client, logged_in: FakeMuster, code: Path) -> None:
    client.upload(code)
    (code / "train.py").chmod(0o755)
    client.upload(code)
    assert [tree["train.py"].get("executable") for tree in logged_in.workspaces.values()] == [None, True]


def test_without_its_base_on_the_server_every_file_is_listed_again(
    client: Client, logged_in: FakeMuster, code: Path
) -> None:
    logged_in.forgotten.add(client.upload(code).id)
    (code / "new.py").write_text("new")
    steps(logged_in)
    made = client.upload(code)
    assert steps(logged_in) == ["/files", "", "/missing", ""]
    assert trees(logged_in)[-1] == {"new.py": b"new", "train.py": b"print('hello')\n"}
    (code / "more.py").write_text("more")
    client.upload(code)
    assert logged_in.requests[-1]["json"]["base"] == made.id


def test_a_base_of_another_server_at_the_same_address_is_not_used(
    client: Client, logged_in: FakeMuster, code: Path
) -> None:
    client.upload(code)
    logged_in.workspaces.clear()
    logged_in.workspaces["another"] = {"theirs.py": packs.file("theirs.py", b"theirs")}
    logged_in.files[packs.sha(b"theirs")] = b"theirs"
    (code / "new.py").write_text("new")
    client.upload(code)
    assert trees(logged_in)[-1] == {"new.py": b"new", "train.py": b"print('hello')\n"}


def test_files_deleted_by_the_server_are_sent_again(client: Client, logged_in: FakeMuster, code: Path) -> None:
    client.upload(code)
    (code / "train.py").rename(code / "main.py")
    logged_in.files.clear()
    client.upload(code)
    assert trees(logged_in)[-1] == {"main.py": b"print('hello')\n"}


def test_for_large_changes_the_server_is_asked_what_it_lacks_first(
    client: Client, logged_in: FakeMuster, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.upload(code)
    monkeypatch.setattr(sending, "EAGER_BYTES", 10)
    logged_in.files[packs.sha(b"known to the server")] = b"known to the server"
    (code / "train.py").write_text("known to the server")
    steps(logged_in)
    client.upload(code)
    assert steps(logged_in) == [""]


def test_the_memory_of_a_folder_holds_for_all_queues_and_no_other_folder(
    client: Client, logged_in: FakeMuster, code: Path, tmp_path: Path
) -> None:
    client.upload(code)
    steps(logged_in)
    client.upload(code, queue="research")
    assert steps(logged_in) == [""]
    code.rename(tmp_path / "elsewhere")
    client.upload(tmp_path / "elsewhere")
    assert steps(logged_in) == ["/missing", ""]


@pytest.mark.parametrize(
    "damage",
    ["", "no json", "{}", "[]", '{"version": 99}', '{"version": 1, "workspace": "x", "sent": [1], "digests": {}}'],
)
def test_an_unreadable_memory_counts_as_missing(client: Client, logged_in: FakeMuster, code: Path, damage: str) -> None:
    client.upload(code)
    (path,) = memory.cache_folder().iterdir()
    path.write_text(damage)
    client.upload(code)
    assert len(logged_in.workspaces) == 1


def test_a_memory_that_cannot_be_written_does_not_stop_an_upload(
    client: Client, logged_in: FakeMuster, code: Path
) -> None:
    memory.cache_folder().parent.mkdir(parents=True)
    memory.cache_folder().write_text("a file where the folder should be")
    client.upload(code)
    assert len(logged_in.workspaces) == 1


def test_an_unchanged_file_is_not_read_again(client: Client, code: Path) -> None:
    """The content changes without a trace in its stat, which no file system does."""
    client.upload(code)
    found = memory.load(client.url, root=str(code))
    seen, _ = found.digests["train.py"]
    found.digests["train.py"] = (seen, "0" * 64)
    found.save(5, entries=found.sent)
    again = memory.load(client.url, root=str(code))
    assert again.entries(sending.walk(code))["train.py"]["digest"] == "0" * 64


def test_a_recently_written_file_is_read_again(client: Client, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second write within one tick of the clock does not change the stat."""
    monkeypatch.setattr(memory, "SETTLED_NS", 3_600_000_000_000)
    client.upload(code)
    assert memory.load(client.url, root=str(code)).digests == {}


def rewriting(monkeypatch: pytest.MonkeyPatch, path: Path, *, times: int) -> None:
    """Rewrite the file after each of the first `times` looks at it."""
    left, walk = [times], sending.walk

    def look(directory: Any) -> Any:
        tree = walk(directory)
        if left[0]:
            left[0] -= 1
            path.write_text("x" * (1000 + left[0]))
        return tree

    monkeypatch.setattr(sending, "walk", look)


def test_a_file_that_changes_during_reading_is_read_again(
    client: Client, logged_in: FakeMuster, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewriting(monkeypatch, code / "train.py", times=2)
    client.upload(code)
    assert trees(logged_in) == [{"train.py": b"x" * 1000}]


def test_a_file_that_keeps_changing_is_an_error_naming_it(
    client: Client, logged_in: FakeMuster, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewriting(monkeypatch, code / "train.py", times=99)
    with pytest.raises(
        WorkspaceError,
        match=r"train.py changed during each of 3 attempts to read it: stop the program that writes it, or list",
    ):
        client.upload(code)
    assert logged_in.workspaces == {}


@pytest.mark.parametrize(
    "act",
    [
        lambda path: path.unlink(),
        lambda path: path.write_text("print('HELLO')\n"),
        lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
)
def test_a_file_is_sent_as_it_was_read_or_not_at_all(code: Path, act: Callable[[Path], Any]) -> None:
    """Between digest and pack the file changes, disappears or becomes a link, which is not followed."""
    (seen,) = sending.walk(code).files
    digest = contents.digest(seen)
    act(code / "train.py")
    with pytest.raises(WorkspaceError):
        list(contents.packs([seen], digest_of=lambda path: digest))


def test_an_unreadable_file_is_named(client: Client, code: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "train.py").touch(mode=0)
        with (
            as_nobody(),
            pytest.raises(WorkspaceError, match=r"cannot read .*train.py .*: fix it, or list it in .musterignore"),
        ):
            client.upload(name)


def test_packs_are_small_and_incompressible_files_are_sent_raw(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "PACK_BYTES", 1000)
    for number in range(10):
        (code / f"{number}").write_bytes(os.urandom(300))
    (code / "large").write_bytes(os.urandom(5000))
    tree = sending.walk(code)
    digests = {file.path: contents.digest(file) for file in tree.files}
    made = list(contents.packs(tree.files, digest_of=digests.__getitem__))
    assert [len(packs.unpacked(one.content)[0]) for one in made] == [3, 3, 3, 1, 1, 1] or len(made) >= 5
    assert sum(one.plain_bytes for one in made) == tree.size_bytes
    assert all(len(one.content) < one.plain_bytes + 8 + 49 * 5 for one in made)


def test_a_folder_that_is_too_large_is_refused_naming_its_largest_files(
    client: Client, logged_in: FakeMuster, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "ASK_BYTES", 100)
    for name, length in (("small.txt", 10), ("weights.bin", 4000), ("data.csv", 3000), ("notes.md", 2000)):
        (code / name).write_bytes(b"x" * length)
    wrong = {
        "field": "size_bytes",
        "value": 9025,
        "message": "the workspace has 9,025 bytes, of 5,000 that your team may send",
    }
    logged_in.faults = [problem(422, "Invalid", "too large", errors=[wrong])]
    with pytest.raises(WorkspaceError) as caught:
        client.upload(code)
    said = str(caught.value)
    assert "of 5,000" in said and said.index("weights.bin") < said.index("data.csv") < said.index("notes.md")
    assert "small.txt" not in said
    assert steps(logged_in) == ["/missing"]


def test_progress_is_reported_up_to_the_end(client: Client, logged_in: FakeMuster, code: Path) -> None:
    (code / "weights").write_bytes(os.urandom(300_000))
    told: list[tuple[int, int]] = []
    client.upload(code, progress=lambda sent, total: told.append((sent, total)))
    total = 300_000 + len("print('hello')\n")
    assert told[-1] == (total, total)
    assert [sent for sent, _ in told] == sorted(sent for sent, _ in told)
    assert len(told) > 3


def test_an_upload_with_progress_is_retried_like_any_other(client: Client, logged_in: FakeMuster, code: Path) -> None:
    logged_in.faults = [None, "drop", (503, {"title": "Busy"}, {})]
    client.upload(code, progress=lambda sent, total: None)
    assert steps(logged_in) == ["/missing", "/files", "/files", "/files", ""]
    assert len(logged_in.workspaces) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_of_a_terminal_and_is_erased_at_the_end() -> None:
    now, shown = [0.0], Terminal()
    progress = Upload(shown, clock=lambda: now[0])
    progress(0, 4 << 20)
    assert shown.getvalue() == ""
    now[0] = 1.0
    progress(1 << 20, 4 << 20)
    assert shown.getvalue() == "\r\x1b[KSending code [######..................] 1.0 of 4.0 MiB"
    progress.close()
    assert shown.getvalue().endswith("\r\x1b[K")


def test_progress_prints_nothing_into_a_pipe() -> None:
    pipe = io.StringIO()
    progress = Upload(pipe, clock=iter([0.0, 9.0, 99.0]).__next__)
    progress(1, 2)
    progress.close()
    assert pipe.getvalue() == ""


def test_the_async_client_sends_and_reads_the_same(logged_in: FakeMuster, code: Path) -> None:
    told: list[int] = []

    async def whole() -> list[Any]:
        async with AsyncClient() as client:
            first = await client.submit(
                "true", queue="research", directory=code, progress=lambda sent, total: told.append(sent)
            )
            (code / "more.py").write_text("more")
            second = await client.submit("true", queue="research", directory=code)
            found = await client.workspace_diff(first, second)
            return [
                [one.path for one in await client.files(second)],
                await client.file(second, "more.py"),
                [one.path for one in found.added],
            ]

    assert asyncio.run(whole()) == [["more.py", "train.py"], b"more", ["more.py"]]
    assert told[-1] == len("print('hello')\n")


def test_the_code_of_jobs_is_listed_read_and_compared(client: Client, logged_in: FakeMuster, code: Path) -> None:
    for name in ("a b.py", "c.py"):
        (code / name).write_text(name)
    first = client.submit("true", queue="research", directory=code)
    (code / "c.py").write_text("changed")
    second = client.submit("true", queue="research", directory=code)
    assert [one.path for one in client.files(first)] == ["a b.py", "c.py", "train.py"]
    assert client.file(first.id, "a b.py") == b"a b.py"
    found = client.workspace_diff(first, second)
    assert ([one.path for one in found.changed], found.changed[0].lines, found.is_empty) == (["c.py"], "@@", False)
    assert client.workspace_diff(first, first).is_empty
    with pytest.raises(NotFound, match="contains no nosuch"):
        client.file(first, "nosuch.py")


def test_a_job_without_code_is_an_error_that_names_it(client: Client, logged_in: FakeMuster) -> None:
    job = client.submit("true", queue="research", directory=None)
    with pytest.raises(NotFound, match="job-1 was submitted without code"):
        client.files(job)


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path / "own"))
    assert memory.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("MUSTER_CACHE")
    assert memory.cache_folder() == tmp_path / "xdg" / "muster" / "sent"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert memory.cache_folder() == tmp_path / ".cache" / "muster" / "sent"
