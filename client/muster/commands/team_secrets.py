"""muster secrets: tokens, key files and registry logins of a team."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from muster.commands.env_file import read_env
from muster.commands.job_options import content
from muster.commands.output import Output, reading, say
from muster.commands.session import open_client, team_and_name
from muster.render import printable
from muster.teams.models_secrets import TeamSecret

KINDS = ["env", "file", "registry"]
KEYS = click.argument("keys", nargs=-1)
FROM_FILE = click.option("--from-file", "files", metavar="KEY=FILE", multiple=True, help="Take a value from a file.")
ENV_FILE = click.option("--env-file", metavar="FILE", help="Take variables from a .env file; - for standard input.")
VALUE_STDIN = click.option("--value-stdin", is_flag=True, help="Read the one KEY's value from standard input.")


@click.group()
def secrets() -> None:
    """Secrets of a team: tokens, key files and registry logins that its jobs use by name."""


@secrets.command("list")
@click.argument("team")
@reading
def list_secrets(*, team: str, output: Output) -> None:
    """List a team's secrets."""
    with open_client() as client:
        found = client.team_secrets(team)
    output.items(
        found,
        ident=lambda one: one.name,
        headers=("SECRET", "KIND", "VERSION", "VALUES", "USED BY"),
        row=lambda one: (one.name, one.kind, one.version, " ".join(one.keys), ", ".join(one.used_by)),
        empty=f"No secrets: `muster secrets create {team} NAME KEY` creates one.",
    )


@secrets.command()
@team_and_name
@reading
def show(*, team: str, name: str, output: Output) -> None:
    """Show which values a secret has, and what uses it."""
    with open_client() as client:
        found = client.team_secret(team, name)
    output.item(found, ident=found.name, lines=lambda: _about(found))


@secrets.command()
@team_and_name
@KEYS
@click.option("--kind", type=click.Choice(KINDS), default="env", help="What replicas get (default: env, variables).")
@FROM_FILE
@ENV_FILE
@VALUE_STDIN
@reading
def create(*, team: str, name: str, keys: tuple[str, ...], kind: str, output: Output, **sources: Any) -> None:
    """Create a secret (administrators of the team).

    Each KEY's value is asked for: on the command line every user of this machine could see it. A registry login asks
    for server, username and password.
    """
    wanted = keys or (("server", "username", "password") if kind == "registry" else ())
    values = _values(wanted, **sources)
    with open_client() as client:
        made = client.create_team_secret(team, name, values=values, kind=kind)
    output.item(made, ident=made.name, lines=lambda: _about(made))


@secrets.command("set")
@team_and_name
@KEYS
@FROM_FILE
@ENV_FILE
@VALUE_STDIN
@click.option("--remove", "removed", metavar="KEY", multiple=True, help="Value to remove; may be repeated.")
@reading
def set_secret(
    *, team: str, name: str, keys: tuple[str, ...], removed: tuple[str, ...], output: Output, **sources: Any
) -> None:
    """Enter a new version of a secret; what is not named stays. The next attempt of each job gets it."""
    values: dict[str, str | None] = dict.fromkeys(removed)
    values.update(_values(keys, may_be_none=bool(removed), **sources))
    with open_client() as client:
        found = client.set_team_secret(team, name, values=values)
    output.item(found, ident=found.name, lines=lambda: _about(found))


@secrets.command()
@team_and_name
def delete(*, team: str, name: str) -> None:
    """Delete a secret that nothing uses any longer."""
    with open_client() as client:
        client.delete_team_secret(team, name)
    say(f"secret {name} of {team} was deleted")


def _values(
    keys: tuple[str, ...], *, files: tuple[str, ...], env_file: str | None, value_stdin: bool, may_be_none: bool = False
) -> dict[str, str]:
    """Return values from files, standard input and prompts. Raises UsageError where there are none."""
    found = dict(read_env(content(env_file), source=env_file, here={})) if env_file else {}
    for one in files:
        key, equals, path = one.partition("=")
        if not equals:
            key, path = Path(one).name, one
        found[key] = content(path)
    if value_stdin:
        if len(keys) != 1:
            raise click.UsageError("--value-stdin is for exactly one KEY")
        found[keys[0]] = sys.stdin.read().removesuffix("\n")
        keys = ()
    for key in keys:
        if not sys.stdin.isatty():
            raise click.UsageError(f"no terminal to ask for {key} on: use --value-stdin, --env-file or --from-file")
        is_public = key in ("server", "username")
        found[key] = click.prompt(key, hide_input=not is_public, err=True)
    if not found and not may_be_none:
        raise click.UsageError("no values: name a KEY, or use --env-file or --from-file")
    return found


def _about(secret: TeamSecret) -> list[str]:
    lines = [
        f"secret {secret.name}, version {secret.version}",
        f"kind     {secret.kind}",
        f"values   {' '.join(secret.keys)}",
        f"used by  {', '.join(secret.used_by) or 'nothing'}",
    ]
    return [printable(line) for line in lines]
