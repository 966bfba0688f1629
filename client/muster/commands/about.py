"""muster queues, muster whoami: what there is to use, and as whom."""

from __future__ import annotations

import click

from muster.commands.session import echo_json, echo_lines, open_client, output_option
from muster.models import Me, Queue
from muster.render import table, terminal_of


@click.command()
@output_option
def queues(*, output: str) -> None:
    """List the queues you may submit to, and how full they are."""
    with open_client() as client:
        found = client.queues()
    if output == "json":
        return echo_json([queue.raw for queue in found])
    if not found:
        return click.echo("No queue is open to you: ask an administrator to add you to a team that has one.")
    headers = ("QUEUE", "TEAM", "CLUSTER", "RESOURCE", "USED", "FREE", "GPUS/NODE", "STATE")
    echo_lines(table(headers, rows=[_row(queue) for queue in found], terminal=terminal_of()))


@click.command()
@output_option
def whoami(*, output: str) -> None:
    """Show the server, the user and the token in use."""
    with open_client() as client:
        me = client.me()
        if output == "json":
            return echo_json(me.raw)
        echo_lines(_about(me, url=client.url))


def _row(queue: Queue) -> tuple[object, ...]:
    used = f"{queue.used} of {queue.nominal}"
    free = max(0, queue.nominal - queue.used)
    state = "open" if queue.is_open else "closed"
    return (queue.name, queue.team, queue.cluster, queue.resource, used, free, queue.gpus_per_node or "", state)


def _about(me: Me, *, url: str) -> list[str]:
    teams = ", ".join(f"{team.name} ({team.role})" for team in me.teams) or "none: ask an administrator to add you"
    lines = [f"user     {me.user}{' (administrator)' if me.is_admin else ''}", f"teams    {teams}", f"server   {url}"]
    if me.version:
        lines.append(f"version  {me.version}")
    if me.token:
        lines.append(f"token    {me.token.name} ({me.token.prefix}...)")
    return lines
