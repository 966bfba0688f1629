"""What the commands share: a client for the chosen server, and the ways to print an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Callable, TypeVar

import click

from muster.client import Client

F = TypeVar("F", bound=Callable[..., Any])

PHASES = (
    "queued",
    "admitted",
    "starting",
    "running",
    "stopping",
    "suspended",
    "succeeded",
    "failed",
    "cancelled",
)


def open_client() -> Client:
    """A client for the server that `--server`, the environment or the saved login chooses."""
    return Client(server=click.get_current_context().find_root().obj)


def output_option(command: F) -> F:
    option: Callable[[F], F] = click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="For people, or for programs."
    )
    return option(command)


def echo_json(answer: Any) -> None:
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))


def echo_lines(lines: Sequence[str]) -> None:
    click.echo("\n".join(lines), color=True)


def note(text: str) -> None:
    """Something for the person, not for the pipe."""
    click.echo(text, err=True, color=True)
