"""Which files are not sent, compared with git's own answer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from muster.code.ignore import default_rules, is_ignored, rules_above, rules_of_folder, rules_of_text

CASES = [
    # patterns, path ("/" at the end: a folder), ignored
    ("*.log", "a.log", True),
    ("*.log", "deep/down/a.log", True),
    ("*.log", "a.log.txt", False),
    ("*.log\n!keep.log", "keep.log", False),  # the last match decides
    ("!keep.log\n*.log", "keep.log", True),
    ("# a comment\n\n", "# a comment", False),
    ("\\#file", "#file", True),
    ("\\!file", "!file", True),
    ("build/", "build/", True),
    ("build/", "build", False),  # a file of that name is sent
    ("build/", "src/build/", True),
    ("/build", "build", True),
    ("/build", "src/build", False),
    ("docs/*.txt", "docs/a.txt", True),
    ("docs/*.txt", "docs/deep/a.txt", False),
    ("docs/*.txt", "src/docs/a.txt", False),  # a slash in the middle anchors
    ("**/logs", "logs", True),
    ("**/logs", "a/b/logs", True),
    ("logs/**", "logs/a/b", True),
    ("logs/**", "logs/", False),
    ("a/**/b", "a/b", True),
    ("a/**/b", "a/x/y/b", True),
    ("a/**/b", "ax/b", False),
    ("a**b", "axxb", True),
    ("a**b", "a/b", False),
    ("**", "anything/at/all", True),
    ("file?.txt", "file1.txt", True),
    ("file?.txt", "file10.txt", False),
    ("a?b", "a/b", False),
    ("[ab].txt", "a.txt", True),
    ("[ab].txt", "c.txt", False),
    ("[a-c]1", "b1", True),
    ("[!a-c]1", "d1", True),
    ("[^a-c]1", "b1", False),
    ("[]x]", "]", True),
    ("a[-x]", "a-", True),
    ("x[!a]y", "x/y", False),
    ("[unclosed", "[unclosed", False),
    ("ends\\", "ends\\", False),
    ("\\*.txt", "*.txt", True),
    ("\\*.txt", "a.txt", False),
    ("trailing   ", "trailing", True),
    ("kept\\ ", "kept ", True),
    ("windows\r\nlines", "windows", True),
    ("a.b", "axb", False),  # the dot is a dot
    ("(a|b)+", "(a|b)+", True),
    ("data/\n!data/keep", "data/keep", False),  # but see the pruning test: the folder itself is never entered
    ("/*\n!/src", "src/", False),
    ("/*\n!/src", "other", True),
    ("*\n!*.py", "a.py", False),
    ("*\n!*/\n!*.py", "src/", False),  # only some files, in every folder
    ("*\n!*/\n!*.py", "src/a.py", False),
    ("*\n!*/\n!*.py", "src/a.txt", True),
    ("!/src\n*.log", "src/a.log", True),  # including a folder again does not include its files
    ("*.log\n!/src", "src/a.log", True),
    ("/src[!0-9]*", "src/a.py", False),  # brackets do not match the slash
    ("/src[+-9]*", "src/a.py", False),
    ("a[[b]", "a[", True),
    ("*.py[cod]", "src/a.pyc", True),
    ("a /", "a/", False),
    ("a /", "a /", True),
    ("tab\t", "tab", False),
    ("a.**.b", "a.x.b", True),
    ("!", "a", False),
    ("//", "a", False),
    ("/", "anything", False),
]


@pytest.mark.parametrize(("patterns", "path", "expected"), CASES)
def test_a_pattern_is_read_as_git_reads_it(patterns: str, path: str, expected: bool) -> None:
    rules = rules_of_text(patterns)

    assert is_ignored(path.rstrip("/"), is_folder=path.endswith("/"), rules=rules) is expected


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the judge here")
@pytest.mark.parametrize(("patterns", "path", "expected"), CASES)
def test_git_agrees(patterns: str, path: str, expected: bool, tmp_path: Path) -> None:
    """Check the table itself, folder by folder, because git also counts an ignored parent."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_bytes(patterns.encode())
    target = tmp_path / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir() if path.endswith("/") else target.touch()

    ours = _is_left_out(patterns, path=path)

    said = (
        subprocess.run(["git", "-C", tmp_path, "check-ignore", "-q", "--no-index", "--", path.rstrip("/")]).returncode
        == 0
    )
    assert ours is said


def _is_left_out(patterns: str, *, path: str) -> bool:
    rules, parts = rules_of_text(patterns), path.rstrip("/").split("/")
    parents = ["/".join(parts[:end]) for end in range(1, len(parts))]
    own = is_ignored(path.rstrip("/"), is_folder=path.endswith("/"), rules=rules)
    return own or any(is_ignored(parent, is_folder=True, rules=rules) for parent in parents)


def test_an_ignore_file_applies_to_its_own_folder_only(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("/only-here\n")
    rules = rules_of_folder(tmp_path, base="sub/")

    assert is_ignored("sub/only-here", is_folder=False, rules=rules)
    assert not is_ignored("only-here", is_folder=False, rules=rules)


def test_musterignore_wins_over_gitignore(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.bin\n")
    (tmp_path / ".musterignore").write_text("!weights.bin\n")
    rules = rules_of_folder(tmp_path, base="")

    assert not is_ignored("weights.bin", is_folder=False, rules=rules)
    assert is_ignored("other.bin", is_folder=False, rules=rules)


def test_a_folder_in_a_work_tree_respects_the_ignore_files_above_it(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.ckpt\n/ml/data\n")
    (tmp_path / "ml").mkdir()

    rules = rules_above(tmp_path / "ml", top=tmp_path)

    assert is_ignored("ml/a.ckpt", is_folder=False, rules=rules)
    assert is_ignored("ml/data", is_folder=True, rules=rules)
    assert not is_ignored("ml/train.py", is_folder=False, rules=rules)


@pytest.mark.parametrize(
    ("name", "is_folder"), [(".git", True), ("__pycache__", True), (".venv", True), ("a.pyc", False)]
)
def test_some_names_are_ignored_by_default(name: str, is_folder: bool) -> None:
    assert is_ignored(f"ml/{name}", is_folder=is_folder, rules=default_rules())


@pytest.mark.parametrize("patterns", ["!*", "!*/", "!.git", "!/.git/", "!**/.git/**"])
@pytest.mark.parametrize("path", [".git", "vendor/library/.git"])
def test_no_pattern_sends_the_git_folder(patterns: str, path: str) -> None:
    """Its configuration may contain a token."""
    assert is_ignored(path, is_folder=True, rules=rules_of_text(patterns))
