"""muster quota: what teams have and use of each flavor; as a file, what that would change, and the change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from muster.client import Client
from muster.commands.job_options import content
from muster.commands.output import Output, note, reading, say
from muster.commands.queues import limit
from muster.commands.quota_file import (
    CEILING,
    COHORT,
    FLAVOR,
    MAKE,
    QUOTA,
    Change,
    Known,
    changes,
    read,
    unnamed,
    written,
)
from muster.commands.session import open_client
from muster.errors import MusterError, NotFound
from muster.http.call import given
from muster.render import printable
from muster.teams.models_quotas import Flavor, Quota

DIFFERS = 1  # as of diff(1)
HEADERS = (
    "FLAVOR", "COHORT", "NOMINAL", "USED", "BORROWED", "LENT", "WAITING", "MAY BORROW", "MAY LEND", "WEIGHT",
)  # fmt: skip


@click.group()
def quota() -> None:
    """Show what teams have and use, or keep it in a file, such as one in git."""


@quota.command("list")
@click.argument("team")
@reading
def list_quotas(*, team: str, output: Output) -> None:
    """Show what a team has of each flavor, and what it uses, borrows and lends of it."""
    with open_client() as client:
        found = client.quotas(team)
    output.items(
        found,
        ident=lambda one: one.flavor,
        headers=HEADERS,
        row=_row,
        empty=f"Team {team} has no quota that it shares: its queues stand by themselves (`muster queues`).",
    )


@quota.command("set")
@click.argument("team")
@click.argument("flavor")
@click.option("--nominal", metavar="N", type=click.IntRange(min=0), help="How much belongs to the team.")
@click.option("--borrow", metavar="N", callback=limit, help="How much beyond it at most: a number, or all.")
@click.option("--lend", metavar="N", callback=limit, help="How much of it to others at most: a number, or all.")
@click.option("--weight", metavar="W", type=float, help="Its part of what is lent, relative to others'.")
@click.option("--cohort", metavar="NAME", help="Cohort that it lends to and borrows from, or none.")
@click.option("--reason", metavar="TEXT", help="Reason, recorded in the audit log.")
@reading
def set_quota(*, team: str, flavor: str, output: Output, **options: Any) -> None:
    """Set a team's quota of a flavor (platform administrators only)."""
    names = {"borrow": "borrowing_limit", "lend": "lending_limit"}
    fields = {names.get(name, name): value for name, value in options.items() if value is not None}
    if not fields.keys() - {"reason"}:
        raise click.UsageError("nothing to change: give --nominal, --borrow, --lend, --weight or --cohort")
    nothing = {"borrowing_limit": "all", "lending_limit": "all", "cohort": "none"}
    sent = {name: None if value == nothing.get(name) else value for name, value in fields.items()}
    with open_client() as client:
        found = client.set_quota(team, flavor, sent)
    output.items([found], ident=lambda one: one.flavor, headers=HEADERS, row=_row, empty="")


@quota.command("remove")
@click.argument("team")
@click.argument("flavor")
def remove_quota(*, team: str, flavor: str) -> None:
    """Take a team's quota of a flavor away (platform administrators only): its queues stand by themselves then."""
    with open_client() as client:
        client.remove_quota(team, flavor)
    say(printable(f"Team {team} has no quota of flavor {flavor} any more"))


@quota.command("flavors")
@reading
def list_flavors(*, output: Output) -> None:
    """List the kinds of devices that quotas are counted in."""
    with open_client() as client:
        found = client.flavors()
    output.items(
        found,
        ident=lambda one: one.name,
        headers=("FLAVOR", "CLUSTER", "RESOURCE", "GPUS/NODE", "NODES"),
        row=lambda one: (one.name, one.cluster, one.resource, one.gpus_per_node or "", _selected(one)),
        empty="There is no flavor: every queue stands by itself.",
    )


@quota.command("make-flavor")
@click.argument("name")
@click.option("--cluster", metavar="NAME", required=True, help="Cluster that has the devices.")
@click.option("--resource", metavar="NAME", help="gpu or cpu.")
@click.option("--gpus-per-node", metavar="N", type=click.IntRange(min=0), help="GPUs per machine.")
@click.option(
    "--selector", metavar="LABEL=VALUE", multiple=True,
    help="Label that its nodes have (repeatable); without, all nodes of the cluster.",
)  # fmt: skip
@reading
def make_flavor(*, name: str, output: Output, selector: tuple[str, ...], **fields: Any) -> None:
    """Make a flavor: one kind of devices of one cluster (platform administrators only)."""
    if odd := next((one for one in selector if "=" not in one), None):
        raise click.UsageError(f"--selector {odd} is no LABEL=VALUE")
    labels = dict(one.split("=", 1) for one in selector)
    with open_client() as client:
        made = client.make_flavor(name, **given(**fields, node_selector=labels or None))
    output.item(made, ident=made.name, lines=lambda: [printable(f"Flavor {made.name} of cluster {made.cluster}")])


@quota.command("remove-flavor")
@click.argument("name")
def remove_flavor(*, name: str) -> None:
    """Remove a flavor that no queue and no quota has (platform administrators only)."""
    with open_client() as client:
        client.remove_flavor(name)
    say(printable(f"Removed flavor {name}"))


@quota.command("cohorts")
@reading
def list_cohorts(*, output: Output) -> None:
    """List the cohorts, in which teams lend each other quota."""
    with open_client() as client:
        found = client.cohorts()
    output.items(
        found,
        ident=lambda one: one.name,
        headers=("COHORT", "IN"),
        row=lambda one: (one.name, one.above or ""),
        empty="There is no cohort: no team lends to another.",
    )


@quota.command("set-cohort")
@click.argument("name")
@click.option("--in", "above", metavar="NAME", help="Cohort that it is part of; without it, of none.")
@reading
def set_cohort(*, name: str, above: str | None, output: Output) -> None:
    """Make a cohort, or move it (platform administrators only)."""
    with open_client() as client:
        found = client.set_cohort(name, above=above)
    words = f"Cohort {found.name}{f' in {found.above}' if found.above else ''}"
    output.item(found, ident=found.name, lines=lambda: [printable(words)])


@quota.command("remove-cohort")
@click.argument("name")
def remove_cohort(*, name: str) -> None:
    """Remove a cohort that has no team and no cohort in it (platform administrators only)."""
    with open_client() as client:
        client.remove_cohort(name)
    say(printable(f"Removed cohort {name}"))


def _selected(one: Flavor) -> str:
    return ",".join(f"{label}={value}" for label, value in sorted(one.node_selector.items()))


def _row(one: Quota) -> tuple[object, ...]:
    borrow, lend = ("all" if value is None else value for value in (one.borrowing_limit, one.lending_limit))
    return (
        one.flavor, one.cohort or "", one.nominal, one.used, one.borrowed, one.lent, one.waiting, borrow, lend,
        f"{one.weight:g}",
    )  # fmt: skip


@quota.command()
@click.option("--team", "teams", metavar="TEAM", multiple=True, help="Only this team; may be repeated.")
def export(*, teams: tuple[str, ...]) -> None:
    """Print flavors, cohorts, ceilings, quotas and queues of your teams as YAML, for `diff` and `apply`."""
    with open_client() as client:
        found = _known(client, teams)
    click.echo(written(found), nl=False)


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
    """Make everything that of the file: what gives room first, then what gives quota back, then what takes it.

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


def _known(client: Client, teams: Iterable[str] = (), *, also: Iterable[str] = ()) -> Known:
    """Return what the server has of these teams, or of all that have queues you see, and `also` of these."""
    only = set(teams)
    queues = [one for one in client.queues() if not only or one.team in only]
    named = sorted({one.team for one in queues} | only | set(also))
    ceilings = {team: {one.resource: one.slots for one in client.ceilings(team)} for team in named}
    try:
        flavors, cohorts = client.flavors(), client.cohorts()
    except NotFound:  # a server of a release before flavors
        return Known(queues, ceilings)
    quotas = {team: {one.flavor: one for one in client.quotas(team)} for team in named}
    return Known(queues, ceilings, flavors, cohorts, {team: found for team, found in quotas.items() if found})


def _changes(client: Client, file: str) -> list[Change]:
    wanted = read(content(file), source=file)
    known = _known(client, also=(str(team) for team in wanted.get("teams") or ()))
    for name in unnamed(wanted, known.queues):
        note(printable(f"queue {name} is not in {file}, and stays as it is"))
    return changes(wanted, known, source=file)


def _apply(client: Client, one: Change, reason: str) -> None:
    if one.kind == FLAVOR:
        client.make_flavor(one.name, **one.after)
    elif one.kind == COHORT:
        client.set_cohort(one.name, above=one.after.get("above"))
    elif one.kind == CEILING:
        client.set_ceiling(one.team, one.name, one.after["slots"], reason=reason)
    elif one.kind == QUOTA:
        client.set_quota(one.team, one.name, {**one.after, **({"reason": reason} if reason else {})})
    elif one.kind == MAKE:
        nulls = [name for name, value in one.after.items() if value is None]
        client.create_queue(one.name, team=one.team, **one.after)
        if nulls:
            client.set_queue(one.name, reason=reason or None, to_null=nulls)
    else:
        nulls = [name for name, value in one.after.items() if value is None]
        client.set_queue(one.name, reason=reason or None, **({"to_null": nulls} if nulls else {}), **one.after)
