"""docs/cli.md names every verb and every exit code."""

from __future__ import annotations

import re
from pathlib import Path

from muster import cli
from muster.commands import following

from tests.process.client.conftest import Run

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_verb_is_listed() -> None:
    table = DOCUMENT.partition("## What comes out")[0]
    listed = {word for cell in re.findall(r"`([^`]+)`", table) for word in re.findall(r"[a-z]+(?:-[a-z]+)*", cell)}

    assert set(cli.cli.commands) - {"whoami"} <= listed


def test_every_exit_code_is_listed() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", DOCUMENT, re.M)}
    told = {cli.NO_CONTACT, cli.NOT_ALLOWED, cli.WRONG_USAGE, cli.INTERRUPTED}

    assert codes == told | {0, following.ENDED_BADLY, following.CANCELLED, following.SUSPENDED, following.INTERRUPTED}


def test_every_verb_has_help(run: Run) -> None:
    for words in _verbs(cli.cli, ()):
        result = run(*words, "--help")
        assert result.exit_code == 0, words
        assert len(result.stdout.splitlines()[2].strip()) > 10, words


def _verbs(group: object, words: tuple[str, ...]) -> list[tuple[str, ...]]:
    below = getattr(group, "commands", {})
    return [words] + [found for name, command in below.items() for found in _verbs(command, (*words, name))]
