"""Packing a folder."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from muster.errors import WorkspaceError
from muster.workspace import Pack, pack


def members(packed: Pack) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(packed.content)) as tar:
        return {member.name: member for member in tar.getmembers()}


def test_the_same_files_give_the_same_bytes_whenever_and_in_whatever_order_they_were_made(tmp_path: Path) -> None:
    for name, order in (("one", ["b.py", "a/c.py", "a.py"]), ("two", ["a.py", "a/c.py", "b.py"])):
        for at, path in enumerate(order):
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(path)
            os.utime(target, (1000 + at, 1000 + at))
    (tmp_path / "two" / "a.py").chmod(0o600)

    first, second = pack(tmp_path / "one"), pack(tmp_path / "two")

    assert first.content == second.content
    assert first.digest == hashlib.sha256(first.content).hexdigest()
    assert (first.files, first.unpacked_bytes) == (3, len("b.py" + "a/c.py" + "a.py"))


def test_entries_are_sorted_and_carry_neither_owner_nor_time(code: Path) -> None:
    (code / "src").mkdir()
    (code / "src" / "model.py").write_text("")
    found = members(pack(code))

    assert list(found) == ["src", "src/model.py", "train.py"]
    assert {(item.uid, item.gid, item.uname, item.gname, item.mtime) for item in found.values()} == {(0, 0, "", "", 0)}


def test_execute_bits_are_kept(code: Path) -> None:
    (code / "run.sh").write_text("#!/bin/sh\n")
    (code / "run.sh").chmod(0o700)
    found = members(pack(code))

    assert (found["run.sh"].mode, found["train.py"].mode) == (0o755, 0o644)


def test_ignored_files_and_all_below_ignored_folders_stay_at_home(code: Path) -> None:
    for path in (
        ".git/HEAD",
        "__pycache__/x.pyc",
        ".venv/bin/python",
        "data/keep.txt",
        "old.pyc",
        "src/a.tmp",
        "src/a.py",
    ):
        (code / path).parent.mkdir(parents=True, exist_ok=True)
        (code / path).write_text("x")
    (code / ".gitignore").write_text("data/\n!data/keep.txt\n")
    (code / "src" / ".musterignore").write_text("*.tmp\n")

    assert list(members(pack(code))) == [".gitignore", "src", "src/.musterignore", "src/a.py", "train.py"]


def test_links_within_the_folder_are_kept(code: Path) -> None:
    (code / "src").mkdir()
    (code / "src" / "link.py").symlink_to("../train.py")
    (code / "all").symlink_to("src")
    found = members(pack(code))

    assert found["src/link.py"].issym()
    assert found["src/link.py"].linkname == "../train.py"
    assert found["all"].linkname == "src"
    assert "all/link.py" not in found


@pytest.mark.parametrize("is_absolute", [True, False])
def test_a_link_that_only_comes_back_by_this_machines_names_is_made_to_hold_anywhere(
    code: Path, is_absolute: bool
) -> None:
    (code / "link.py").symlink_to(code / "train.py" if is_absolute else Path("..", code.name, "train.py"))

    assert members(pack(code))["link.py"].linkname == "train.py"


def test_a_dangling_link_within_the_folder_is_kept(code: Path) -> None:
    (code / "later").symlink_to("made-by-the-job")

    assert members(pack(code))["later"].linkname == "made-by-the-job"


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "../../x"])
def test_a_link_out_of_the_folder_is_refused_by_name(code: Path, target: str) -> None:
    (code / "secrets").symlink_to(target)

    with pytest.raises(WorkspaceError, match=r"the link secrets leaves the folder .*: copy what it points to, or list"):
        pack(code)


def test_a_link_out_of_the_folder_that_is_ignored_does_no_harm(code: Path) -> None:
    (code / "data").symlink_to("/etc")
    (code / ".musterignore").write_text("data\n")

    assert "data" not in members(pack(code))


def test_too_large_a_folder_is_refused_naming_the_largest_files(code: Path) -> None:
    for name, length in (("small.txt", 10), ("weights.bin", 4000), ("data.csv", 3000), ("notes.md", 2000)):
        (code / name).write_bytes(b"x" * length)

    with pytest.raises(WorkspaceError) as caught:
        pack(code, limit_bytes=5000)

    said = str(caught.value)
    assert said.index("weights.bin") < said.index("data.csv") < said.index("notes.md") < said.index(".musterignore")
    assert "small.txt" not in said


def test_pipes_are_passed_over(code: Path) -> None:
    os.mkfifo(code / "pipe")

    assert list(members(pack(code))) == ["train.py"]


def test_names_beyond_ascii_and_long_paths_survive(code: Path) -> None:
    deep = code / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    (deep / "größe.py").write_text("")

    assert f"{'d' * 120}/{'e' * 120}/größe.py" in members(pack(code))


def test_a_folder_that_is_not_there_says_how_to_choose_another(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=r"no folder .*nowhere: choose one with --dir"):
        pack(tmp_path / "nowhere")


def test_an_unreadable_file_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    # Outside pytest's own folders, which only their maker may enter: root has to look as somebody else here.
    with tempfile.TemporaryDirectory() as name, as_nobody(Path(name)) as folder:
        with pytest.raises(WorkspaceError, match=r"can not read .*train.py"):
            pack(folder)


@contextlib.contextmanager
def as_nobody(folder: Path) -> Iterator[Path]:
    """A folder with a file that we can not read; root reads everything, so root is nobody meanwhile."""
    folder.chmod(0o755)
    (folder / "train.py").touch(mode=0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
