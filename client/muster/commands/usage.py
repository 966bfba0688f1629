"""muster usage: hours times slots that teams, queues, users or jobs used."""

from __future__ import annotations

import re

import click

from muster.commands.output import Output, reading
from muster.commands.session import open_client
from muster.teams.models_quotas import Usage

BY = ("team", "queue", "user", "job")


def _day(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise click.BadParameter(f"{value!r} is no day such as 2026-03-31")
    return value


@click.command()
@click.option("--by", type=click.Choice(BY), default="team", help="What is summed.")
@click.option("--team", metavar="TEAM", help="Only this team.")
@click.option(
    "--since", metavar="DAY", callback=_day, help="First day (UTC), such as 2026-03-01; 30 days ago without it."
)
@click.option("--until", metavar="DAY", callback=_day, help="The day after the last one; tomorrow without it.")
@click.option("--daily", "is_daily", is_flag=True, help="A sum for each day.")
@reading
def usage(*, by: str, team: str | None, since: str | None, until: str | None, is_daily: bool, output: Output) -> None:
    """Show the GPU hours that teams, queues, users or jobs used, and what of them was lost."""
    with open_client() as client:
        found = client.usage(by=by, team=team, since=since, until=until, is_daily=is_daily)
    output.items(
        found,
        ident=lambda one: one.job or one.user or one.queue or one.team,
        headers=(
            "DAY" if is_daily else "",
            "TEAM",
            "QUEUE",
            "USER",
            "JOB",
            "NAME",
            "OF",
            "HOURS",
            "LOST",
            "STARTING",
            "IDLE",
        ),
        row=lambda one: _row(one, is_daily=is_daily),
        empty="No job held anything in this time.",
        is_sparse=True,
    )


def _row(one: Usage, *, is_daily: bool) -> tuple[object, ...]:
    day = one.begins.strftime("%Y-%m-%d") if is_daily and one.begins else ""
    parts = (f"{part:.1f}" if part else "" for part in (one.lost, one.starting, one.idle))
    sums = (f"{one.hours:.1f}", *parts)
    return (day, one.team, one.queue, one.user, one.job or "", one.name, one.resource, *sums)
