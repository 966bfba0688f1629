"""One entry point with the same words everywhere, and one version."""

import re
import tomllib
from pathlib import Path

import click
import pytest
import yaml
from django.conf import settings
from muster import cli as client
from muster.http.version import VERSION as CLIENT

from controlplane.operations.server import cli

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = sorted((ROOT / "tests/cluster/chart/golden").glob("*.yaml"))


def test_the_document_has_every_word_of_muster_server():
    """`secrets` has a paragraph of its own: only compose calls it."""
    (table,) = re.findall(r"^\| subcommand \|.*?\n\n", (ROOT / "docs/install.md").read_text(), re.S | re.M)
    first_cells = re.findall(r"^\| (`.*?) \|", table, re.M)
    words = {word for cell in first_cells for word in re.findall(r"`([a-z-]+)`", cell)}
    assert words | {"secrets"} == set(cli.commands)


def test_compose_uses_words_of_muster_server():
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    words = {name: one["command"][0] for name, one in services.items() if name not in ("postgres", "redis")}
    assert words == {name: name for name in words} and set(words) <= set(cli.commands)
    assert {"web", "tasks", "beat", "watcher", "migrate"} <= set(words)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_the_chart_uses_words_of_muster_server(golden):
    words = {}
    for one in yaml.safe_load_all(golden.read_text()):
        for container in one.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            if "/muster:" in container["image"]:
                words[container["name"]] = container["args"][0]
    assert words == {name: name for name in ("web", "tasks", "beat", "watcher", "migrate")}


# A command of the client in a page, a document or a message: quoted, in parentheses, or at the beginning of a line.
COMMAND = re.compile(r"""(?:^\s*(?:\$ )?|[`"'(>])(?:bin/)?muster((?: [a-z][a-z-]*)+)""", re.M)
NOT_COMMANDS = {"workspace", "on"}  # `muster workspace 1` heads a list of files; "muster on HOST" names a token


def unknown_verbs(text: str) -> list[str]:
    """Commands in the text that the command line does not have."""
    return [words for words in COMMAND.findall(text) if not _is_command(words.split())]


def _is_command(words: list[str]) -> bool:
    """Whether the words lead to a verb; what follows a verb are its arguments."""
    if words[0] in NOT_COMMANDS:
        return True
    command: click.Command | None = client.cli
    for word in words:
        if not isinstance(command, click.Group):
            break
        command = command.commands.get(word)
    return command is not None


def test_commands_that_are_shown_to_users_exist():
    paths = [
        *ROOT.glob("templates/**/*.html"),
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *(path for package in ("accounts", "client", "jobs", "queues") for path in (ROOT / package).rglob("*.py")),
    ]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    assert sum(len(COMMAND.findall(text)) for text in texts.values()) > 100
    unknown = {path: unknown_verbs(text) for path, text in texts.items()}
    assert {path: verbs for path, verbs in unknown.items() if verbs} == {}


def test_a_command_that_does_not_exist_is_found():
    text = "<code>muster code 3</code> `muster files 3` `muster queues make Q` muster teams members add\nkubectl -n muster exec"
    assert unknown_verbs(text) == [" code", " queues make"]


def test_the_version_is_the_same_everywhere():
    chart = yaml.safe_load((ROOT / "helm/muster/Chart.yaml").read_text())
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["web"]["image"]
    found = {
        "pyproject.toml": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        "Dockerfile": re.search(r"^ARG VERSION=(\S+)$", (ROOT / "Dockerfile").read_text(), re.M)[1],
        "Chart.yaml version": chart["version"],
        "Chart.yaml appVersion": chart["appVersion"],
        "docker-compose.yml": re.search(r":-muster:([\d.]+)}", compose)[1],
        "controlplane/settings.py": settings.VERSION,
        "the client": CLIENT,
        "README": re.search(r"docker build -t REGISTRY/muster:(\S+) ", (ROOT / "README.md").read_text())[1],
    }
    assert len(set(found.values())) == 1, found
