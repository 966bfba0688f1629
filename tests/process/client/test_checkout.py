"""In a git checkout, git decides what is sent: what it tracks, and what it neither tracks nor ignores."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from muster.code import checkout
from muster.code.workspace import LeftOut, walk
from muster.errors import WorkspaceError

GIT = ["git", "-c", "user.name=someone", "-c", "user.email=someone@example.org", "-c", "protocol.file.allow=always"]


@pytest.fixture(autouse=True)
def own_settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


@pytest.fixture(params=["git", "dulwich"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to read a repository: git itself, and where it is not installed."""
    if request.param == "dulwich":
        monkeypatch.setattr(checkout, "LIST", ("git-that-is-not-installed",))
    return str(request.param)


def git(folder: Path, *words: str) -> bytes:
    return subprocess.run([*GIT, "-C", str(folder), *words], check=True, capture_output=True).stdout


def written(folder: Path, *names: str, text: str = "x") -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def repository(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    return written(folder, *names)


def sent(folder: Path) -> list[str]:
    tree = walk(folder)
    return sorted(one.path for one in (*tree.files, *tree.links))


def test_a_tracked_package_in_an_ignored_folder_is_sent(tmp_path: Path, reader: str) -> None:
    root = repository(tmp_path, "train.py", "proj/data/__init__.py", "proj/data/big.bin", "proj/data/deep/a/x.py")
    (root / ".gitignore").write_text("data/\n")
    git(root, "add", "-f", "train.py", "proj/data/__init__.py", "proj/data/deep/a/x.py")
    assert sent(root) == [".gitignore", "proj/data/__init__.py", "proj/data/deep/a/x.py", "train.py"]
    assert walk(root).left_out == (LeftOut("proj/data/", 1, 1),)
    assert sent(root / "proj") == ["data/__init__.py", "data/deep/a/x.py"]


def test_what_exclude_files_name_is_not_sent(tmp_path: Path, own_settings: Path, reader: str) -> None:
    root = repository(tmp_path, "train.py", ".secret-notes", "last.ckpt", "outputs/big.bin", "own.txt")
    (root / ".git/info/exclude").write_text("outputs/\n/own.txt\n")
    git(root, "config", "core.excludesFile", "~/excludes")
    (own_settings / "excludes").write_text(".secret-notes\n*.ckpt\n")
    assert sent(root) == ["train.py"]


def test_the_users_own_file_needs_no_setting(tmp_path: Path, own_settings: Path, reader: str) -> None:
    written(own_settings, ".config/git/ignore", text="*.ckpt\n")
    assert sent(repository(tmp_path, "train.py", "last.ckpt")) == ["train.py"]


def test_what_is_tracked_but_deleted_is_not_sent(tmp_path: Path, reader: str) -> None:
    root = repository(tmp_path, "train.py", "gone.py")
    git(root, "add", ".")
    (root / "gone.py").unlink()
    assert sent(root) == ["train.py"]


def test_musterignore_holds_for_tracked_files_and_may_include_ignored_ones(tmp_path: Path, reader: str) -> None:
    root = repository(tmp_path, "train.py", "assets/a.png", "weights.bin", "other.bin", "notes.md")
    (root / ".gitignore").write_text("*.bin\n")
    git(root, "add", ".")
    (root / ".musterignore").write_text("assets/\nnotes.md\n!weights.bin\n")
    assert sent(root) == [".gitignore", ".musterignore", "train.py", "weights.bin"]


def test_repositories_inside_have_their_own_rules(tmp_path: Path, reader: str) -> None:
    library = repository(tmp_path / "library", "lib.py", "build/made.py", "keep/a.log")
    (library / ".gitignore").write_text("build/\n")
    git(library, "add", "-f", ".gitignore", "lib.py", "keep/a.log")
    git(library, "commit", "-qm", "first")
    root = repository(tmp_path / "root", "train.py", "a.log")
    (root / ".gitignore").write_text("*.log\nvendored/\n")
    git(root, "submodule", "add", "-q", str(library), "sub")
    repository(root / "nested", "n.py", "n.log", "out/x")
    (root / "nested/.git/info/exclude").write_text("out/\n")
    repository(root / "vendored", "v.py")
    git(root, "add", ".gitignore", "train.py")
    assert sent(root) == [
        ".gitignore", ".gitmodules", "nested/n.log", "nested/n.py", "sub/.gitignore", "sub/keep/a.log", "sub/lib.py", "train.py",
    ]  # fmt: skip


def test_a_linked_work_tree_is_read_as_well(tmp_path: Path, reader: str) -> None:
    root = repository(tmp_path / "main", "data/a.py")
    (root / ".gitignore").write_text("data/\n")
    git(root, "add", "-f", ".")
    git(root, "commit", "-qm", "first")
    git(root, "worktree", "add", "-q", str(tmp_path / "linked"))
    (root / ".git/info/exclude").write_text("*.ckpt\n")
    assert sent(written(tmp_path / "linked", "b.ckpt", "data/b.py")) == [".gitignore", "data/a.py"]


def test_from_an_ignored_folder_everything_is_sent(tmp_path: Path, reader: str) -> None:
    root = repository(tmp_path, "runs/one/train.py", "runs/one/last.ckpt", "train.py")
    (root / ".gitignore").write_text("runs/\n*.ckpt\n")
    assert sent(root / "runs/one") == ["train.py"]


def test_no_program_of_a_checkout_is_run(tmp_path: Path) -> None:
    root = repository(tmp_path / "root", "train.py")
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    git(root, "config", "core.fsmonitor", str(trap))
    assert sent(root) == ["train.py"] and not (tmp_path / "sprung").exists()


def test_a_submodule_that_is_not_checked_out_is_named(tmp_path: Path, reader: str) -> None:
    library = repository(tmp_path / "library", "lib.py")
    git(library, "add", ".")
    git(library, "commit", "-qm", "one")
    root = repository(tmp_path / "root", "train.py")
    git(root, "submodule", "add", "-q", str(library), "sub")
    git(root, "commit", "-qam", "with it")
    git(tmp_path, "clone", "-q", str(root), "clone")  # without --recurse-submodules
    root = tmp_path / "clone"
    assert walk(root).missing == ("sub",)
    git(root, "submodule", "update", "-q", "--init")
    assert walk(root).missing == ()


def test_a_device_as_file_of_rules_is_not_read(tmp_path: Path, reader: str) -> None:
    root = repository(tmp_path, "train.py")
    git(root, "config", "core.excludesFile", "/dev/zero")
    assert "train.py" in sent(root)


def test_nothing_is_fetched_into_a_partial_clone(tmp_path: Path) -> None:
    """For a sparse index git reads trees, and fetches a missing one by the program that the configuration names."""
    root, trap = repository(tmp_path / "root", "a/train.py", "b/other.py"), tmp_path / "trap"
    git(root, "add", ".")
    git(root, "-c", "user.name=ada", "-c", "user.email=ada@example.com", "commit", "-qm", "both")
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "a")
    tree = subprocess.run(["git", "rev-parse", "HEAD:b"], cwd=root, capture_output=True, text=True, check=True).stdout
    (root / ".git/objects" / tree[:2] / tree.strip()[2:]).unlink()
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": "ssh://localhost/nowhere",
        "remote.origin.promisor": "true",
        "core.sshCommand": str(trap),
    }.items():
        git(root, "config", name, value)
    assert sent(root) == ["a/train.py"] and not (tmp_path / "sprung").exists()


def test_a_damaged_repository_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "LIST", ("git-that-is-not-installed",))
    root = repository(tmp_path, "train.py")
    git(root, "add", ".")
    (root / ".git/index").write_bytes(b"DIRC\0\0\0\x09nonsense")
    with pytest.raises(WorkspaceError, match=r"cannot read the repository .*: install git, or send a copy"):
        walk(root)


def test_what_is_left_out_is_counted_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.code.workspace.MOST_COUNTED", 50)
    root = written(tmp_path, "train.py", "a.bin", "__pycache__/train.pyc", *(f"data/{n}" for n in range(100)))
    (root / ".gitignore").write_text("data/\n*.bin\n")
    assert walk(root).left_out == (LeftOut("data/", 49, 49, is_whole=False), LeftOut("a.bin", 1, 1))


# -- against git itself

NAMES = ("a", "b.py", "data", "out", "x.log", "x.bin", "[z]", "sp ace", "é.txt")
PATTERNS = (
    "*.log", "data/", "/out", "out/", "!x.log", "*", "!*/", "!*.py", "a/b.py", "/data/*", "**/a", "a/**", "**/out/*.bin", "!data/",
    "[ab]*", "!/a", "# note", "", "x.*", "\\[z]", "sp*", "*.txt ", "out/**/x.log", "/*", "!/data", "data/*", "!data/a",
)  # fmt: skip


def generated(chance: random.Random, folder: Path, home: Path, *, depth: int = 0) -> Path:
    """Make a repository with rules at every place that git knows, tracked and deleted files, links, others inside."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    files = list({"/".join(chance.choices(NAMES, k=chance.randint(1, 4))) for _ in range(chance.randint(2, 14))})
    made = []
    for name in files:
        path = folder / name
        if os.path.lexists(path) or any(one.is_file() or one.is_symlink() for one in path.parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if chance.random() < 0.1:
            path.symlink_to("anywhere")
        else:
            path.write_text(name)
        made.append(name)
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir() and ".git" not in path.parts)]
    for place in chance.sample(folders, k=min(len(folders), 2)):
        (place / ".gitignore").write_text(rules(chance))
    (folder / ".git/info/exclude").write_text(rules(chance, most=2))
    if depth == 0:
        written(home, ".config/git/ignore", text=rules(chance, most=1))
    tracked = chance.sample(made, k=chance.randint(0, len(made)))
    if tracked:
        git(folder, "add", "-f", "--", *(f":(literal){name}" for name in tracked))
        if depth or chance.random() < 0.3:
            git(folder, "commit", "-qm", "first")
        if chance.random() < 0.3:
            (folder / chance.choice(tracked)).unlink()
    if depth == 0 and chance.random() < 0.4:
        inner = chance.choice(folders) / chance.choice(("nested", "out", "data"))
        if not os.path.lexists(inner) and inner.parent.is_dir():
            generated(chance, inner, home, depth=1)
    return folder


def rules(chance: random.Random, *, most: int = 4) -> str:
    return "".join(f"{one}\n" for one in chance.sample(PATTERNS, k=chance.randint(0, most)))


def listed(folder: Path, prefix: str = "") -> Iterator[str]:
    """What git lists, in the repositories inside as well, of what there is."""
    for path in os.fsdecode(git(folder, "ls-files", "-coz", "--exclude-standard")).split("\0"):
        place = folder / path
        if path and (place / ".git").exists():
            yield from listed(place, f"{prefix}{path.rstrip('/')}/")
        elif path and not path.endswith("/") and os.path.lexists(place):
            yield prefix + path


FEW, ALL = range(30), range(30, 200)


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.full) for seed in ALL)])
def test_what_git_lists_of_a_generated_repository_is_sent(
    seed: int, tmp_path: Path, own_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = generated(random.Random(seed), tmp_path / "root", own_settings)
    expected = sorted(set(listed(root)))
    assert sent(root) == expected
    monkeypatch.setattr(checkout, "LIST", ("git-that-is-not-installed",))
    assert sent(root) == expected, "by dulwich"
