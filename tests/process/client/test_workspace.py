"""Which files of a folder are sent."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from muster.code.program import check_is_sent
from muster.code.workspace import walk
from muster.errors import WorkspaceError


def paths(folder: Path) -> list[str]:
    tree = walk(folder)
    return sorted([*(file.path for file in tree.files), *(link.path for link in tree.links)])


def targets(folder: Path) -> dict[str, str]:
    return {link.path: link.target for link in walk(folder).links}


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def test_dotfiles_are_sent_and_empty_folders_are_not(code: Path) -> None:
    write(code, ".env", ".config/a")
    (code / "empty").mkdir()

    assert paths(code) == [".config/a", ".env", "train.py"]


def test_execute_bits_are_kept(code: Path) -> None:
    write(code, "run.sh")
    (code / "run.sh").chmod(0o700)

    assert {file.path: file.is_executable for file in walk(code).files} == {"run.sh": True, "train.py": False}


def test_ignored_files_and_everything_in_ignored_folders_are_not_sent(code: Path) -> None:
    write(
        code, ".git/HEAD", "__pycache__/x.pyc", ".venv/bin/python", "data/keep.txt", "old.pyc", "src/a.tmp", "src/a.py"
    )
    (code / ".gitignore").write_text("data/\n!data/keep.txt\n")
    (code / "src" / ".musterignore").write_text("*.tmp\n")

    assert paths(code) == [".gitignore", "src/.musterignore", "src/a.py", "train.py"]


def test_a_nested_ignore_file_can_include_files_again(code: Path) -> None:
    write(code, "a.log", "keep/b.log", "keep/c.log")
    (code / ".gitignore").write_text("*.log\n")
    (code / "keep" / ".musterignore").write_text("!b.log\n")

    assert paths(code) == [".gitignore", "keep/.musterignore", "keep/b.log", "train.py"]


def test_a_name_that_is_not_utf_8_can_be_ignored(code: Path) -> None:
    Path(os.fsdecode(os.fsencode(code) + b"/caf\xe9.py")).write_text("")
    (code / ".musterignore").write_bytes(b"caf\xe9.py\n")

    assert paths(code) == [".musterignore", "train.py"]


@pytest.mark.filterwarnings("error")
def test_brackets_within_brackets_print_no_warning(code: Path) -> None:
    write(code, "a[", "ab")
    (code / ".musterignore").write_text("a[[]\n")

    assert paths(code) == [".musterignore", "ab", "train.py"]


def test_links_within_the_folder_are_kept_also_those_to_folders(code: Path) -> None:
    write(code, "src/model.py")
    (code / "src" / "link.py").symlink_to("../train.py")
    (code / "all").symlink_to("src")

    assert paths(code) == ["all", "src/link.py", "src/model.py", "train.py"]
    assert targets(code) == {"all": "src", "src/link.py": "../train.py"}


def test_a_dangling_link_within_the_folder_is_kept(code: Path) -> None:
    (code / "later").symlink_to("made-by-the-job")

    assert targets(code) == {"later": "made-by-the-job"}


@pytest.mark.parametrize("target", ["../code/train.py", "lib/../train.py"])
def test_a_link_with_a_detour_is_simplified(code: Path, target: str) -> None:
    (code / "lib").mkdir()
    (code / "link.py").symlink_to(target)

    assert targets(code) == {"link.py": "train.py"}


@pytest.mark.parametrize("target", ["../outside", "../../x", "loop/../../x"])
def test_a_link_out_of_the_folder_is_refused_by_name(code: Path, target: str) -> None:
    (code / "secrets").symlink_to(target)

    with pytest.raises(WorkspaceError, match=r"the link secrets leaves the folder .*: copy what it points to, or list"):
        walk(code)


def test_a_link_that_leaves_through_another_link_is_refused(code: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    (code / ".musterignore").write_text("way\n")
    (code / "way").symlink_to("..")
    (code / "secrets").symlink_to("way/outside")

    with pytest.raises(WorkspaceError, match="the link secrets leaves the folder"):
        walk(code)


def test_an_absolute_link_is_refused_by_name(code: Path) -> None:
    (code / "link.py").symlink_to(code / "train.py")

    with pytest.raises(
        WorkspaceError, match=r"the link link.py is absolute .*: make it relative \(ln -srf\), or list it"
    ):
        walk(code)


def test_an_ignored_link_is_not_refused(code: Path) -> None:
    (code / "data").symlink_to("/etc")
    (code / ".musterignore").write_text("data\n")

    assert "data" not in paths(code)


def test_a_pipe_and_a_socket_are_refused_by_name_unless_ignored(code: Path) -> None:
    os.mkfifo(code / "pipe")
    with pytest.raises(
        WorkspaceError, match=r"pipe is a pipe, which cannot be sent to a job: move it away, or list it"
    ):
        walk(code)
    (code / ".musterignore").write_text("pipe\n")
    here = os.getcwd()
    os.chdir(code)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("door")
        os.chdir(here)
        with pytest.raises(WorkspaceError, match="door is a socket"):
            walk(code)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (b"caf\xe9.py", r"the name 'caf\\udce9.py' is not UTF-8: rename it, or list it in .musterignore"),
        (b"two\nlines", r"contains the control character U\+000A: rename it"),
        (b"tab\there", r"contains the control character U\+0009"),
    ],
)
def test_a_name_that_cannot_be_kept_is_an_error(code: Path, name: bytes, words: str) -> None:
    Path(os.fsdecode(os.fsencode(code) + b"/" + name)).write_text("")

    with pytest.raises(WorkspaceError, match=words):
        walk(code)


def test_names_in_any_script_case_and_unicode_form_are_kept(code: Path) -> None:
    names = ["caf\u00e9", "cafe\u0301", "A", "a", "größe/文件.py", "back\\slash", "d" * 255 + "/" + "e" * 255]
    write(code, *names)

    assert paths(code) == sorted([*names, "train.py"])


def test_a_path_that_is_too_long_is_an_error(code: Path) -> None:
    write(code, "/".join(["d" * 250] * 5))

    with pytest.raises(WorkspaceError, match="is longer than 1024 bytes"):
        walk(code)


def test_a_missing_folder_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=r"no folder .*nowhere: choose one with --dir"):
        walk(tmp_path / "nowhere")


def test_an_unreadable_folder_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    # Outside pytest's folders, which only their owner may enter: the test runs as another user than root here.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "closed").mkdir(mode=0)
        with as_nobody(), pytest.raises(WorkspaceError, match=r"cannot read .*closed"):
            walk(folder)


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Become the user nobody for a while, because root can read everything."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("word", "way_out"),
    [
        (".venv/bin/python", "name it in full: {top}/.venv/bin/python. If not, name an interpreter that is there"),
        ("./envs/one/bin/torchrun", "name it in full: {top}/envs/one/bin/torchrun. If not,"),
        ("build/run.sh", "Lines !/build/ and !/build/** in .musterignore send its folder"),
        ("./secret.sh", "A line !/secret.sh in .musterignore sends it"),
        ("../outside.sh", "It is outside of the folder; choose another one with --dir"),
    ],
)
def test_a_command_whose_program_is_not_sent_is_refused_with_the_way_out(code: Path, word: str, way_out: str) -> None:
    write(code, ".venv/pyvenv.cfg", ".venv/bin/python", "envs/one/conda-meta/history", "envs/one/bin/torchrun")
    write(code, "build/run.sh", "../outside.sh", "secret.sh")
    (code / ".gitignore").write_text("envs/\nbuild/\nsecret.sh\n")
    with pytest.raises(WorkspaceError) as caught:
        check_is_sent([word, "train.py"], tree=walk(code))
    text = f"the command starts {word}, which is not sent with the code. "
    assert str(caught.value).startswith(text) and way_out.format(top=os.path.realpath(code)) in str(caught.value)


@pytest.mark.parametrize(
    "command", ["python train.py", "./run.sh", "link/run.sh a", "/bin/sh x", "gone/python train.py", "'unfinished", ""]
)
def test_a_command_whose_program_is_sent_or_not_of_this_machine_is_left_to_the_server(code: Path, command: str) -> None:
    write(code, "run.sh", "scripts/run.sh", "python")
    (code / ".gitignore").write_text("/python\n")
    (code / "link").symlink_to("scripts")
    check_is_sent(command, tree=walk(code))
