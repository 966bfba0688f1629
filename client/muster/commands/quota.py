"""muster quota: the quotas of teams as a file, what it would change, and the change."""

from __future__ import annotations

import click

from muster.client import Client
from muster.commands.job_options import content
from muster.commands.output import note, say
from muster.commands.quota_file import CEILING, MAKE, Change, changes, read, unnamed, written
from muster.commands.session import open_client
from muster.errors import MusterError
from muster.jobs.models import Queue
from muster.render import printable

DIFFERS = 1  # as of diff(1)


@click.group()
def quota() -> None:
    """Keep the quotas of teams in a file, such as one in git."""


@quota.command()
@click.option("--team", "teams", metavar="TEAM", multiple=True, help="Only this team; may be repeated.")
def export(*, teams: tuple[str, ...]) -> None:
    """Print ceilings and queues of your teams as YAML, for `diff` and `apply`."""
    with open_client() as client:
        queues, ceilings = _known(client, teams)
    click.echo(written(queues, ceilings), nl=False)


@quota.command()
@click.argument("file")
def diff(*, file: str) -> None:
    """Say what `apply` would change; exit code 1 if anything.

    Queues that the file does not name stay as they are.
    """
    with open_client() as client:
        found = _changes(client, file)
    for one in found:
        click.echo(printable(one.words))
    if found:
        raise click.exceptions.Exit(DIFFERS)


@quota.command()
@click.argument("file")
@click.option("--reason", metavar="TEXT", default="", help="Reason, recorded in the audit log.")
def apply(*, file: str, reason: str) -> None:
    """Make queues, quotas and ceilings those of the file: ceilings first, then what gives quota back.

    It stops at the first change that is refused; what was done stays, and `apply` again goes on from there.
    """
    with open_client() as client:
        found = _changes(client, file)
        for number, one in enumerate(found):
            try:
                _apply(client, one, reason)
            except MusterError:
                left = len(found) - number - 1
                more = f"; {left} change{'s' if left > 1 else ''} after it not tried" if left else ""
                note(printable(f"refused: {one.words}{more}"))
                raise
            click.echo(printable(one.words))
    if not found:
        say("nothing to change")


def _known(client: Client, teams: tuple[str, ...] = ()) -> tuple[list[Queue], dict[str, dict[str, int | None]]]:
    queues = [one for one in client.queues() if not teams or one.team in teams]
    named = sorted({one.team for one in queues} | set(teams))
    return queues, {team: {one.resource: one.slots for one in client.ceilings(team)} for team in named}


def _changes(client: Client, file: str) -> list[Change]:
    wanted = read(content(file), source=file)
    queues, ceilings = _known(client)
    for team in wanted.keys() - ceilings.keys():
        ceilings[team] = {one.resource: one.slots for one in client.ceilings(team)}
    for name in unnamed(wanted, queues):
        note(printable(f"queue {name} is not in {file}, and stays as it is"))
    return changes(wanted, queues, ceilings, source=file)


def _apply(client: Client, one: Change, reason: str) -> None:
    if one.kind == CEILING:
        client.set_ceiling(one.team, one.name, one.after["slots"], reason=reason)
    elif one.kind == MAKE:
        client.create_queue(one.name, team=one.team, **one.after)
    else:
        client.set_queue(one.name, reason=reason or None, **one.after)
