"""muster requests: ask for more quota, and decide about what others ask for."""

from __future__ import annotations

import click

from muster.commands.output import Output, reading
from muster.commands.session import open_client
from muster.render import printable
from muster.teams.models_quotas import QuotaRequest


@click.group()
def requests() -> None:
    """Ask for more quota, and grant or decline what others ask for."""


@requests.command("list")
@click.option("--state", type=click.Choice(["open", "granted", "declined", "withdrawn"]), help="Only these.")
@reading
def list_requests(*, state: str | None, output: Output) -> None:
    """List requests of your teams, the newest first."""
    with open_client() as client:
        found = list(client.quota_requests(state=state))
    output.items(
        found,
        ident=lambda one: one.id,
        headers=("ID", "TEAM", "WHAT", "BY", "STATE", "WHY", "ANSWER"),
        row=lambda one: (one.id, one.team, one.words, one.asked_by or "", _state(one), one.why, one.answer),
        empty="Nobody has asked for quota.",
        is_sparse=True,
    )


@requests.command()
@click.option("--queue", metavar="QUEUE", help="Queue that should have more.")
@click.option("--team", metavar="TEAM", help="Team that should have more of --flavor.")
@click.option("--flavor", metavar="FLAVOR", help="Flavor of which --team should have more.")
@click.option("--slots", metavar="N", type=click.IntRange(min=1), required=True, help="How many in all.")
@click.option("--why", metavar="TEXT", required=True, help="What for; who decides reads it.")
@reading
def ask(*, queue: str | None, team: str | None, flavor: str | None, slots: int, why: str, output: Output) -> None:
    """Ask for more of a queue, or of what a team has of a flavor."""
    if (queue is None) == (team is None or flavor is None):
        raise click.UsageError("give --queue, or --team and --flavor instead of it")
    with open_client() as client:
        made = client.ask_for_quota(queue=queue, team=team, flavor=flavor, slots=slots, why=why)
    output.item(made, ident=made.id, lines=lambda: [printable(f"Request {made.id}: {made.words}")])


@requests.command()
@click.argument("number", metavar="ID", type=int)
@click.option("--slots", metavar="N", type=click.IntRange(min=0), help="How many in all; as many as asked without it.")
@click.option("--answer", metavar="TEXT", default="", help="Words for who asked.")
@reading
def grant(*, number: int, slots: int | None, answer: str, output: Output) -> None:
    """Grant a request: the quota is changed at once."""
    with open_client() as client:
        done = client.decide_quota(number, "grant", slots=slots, answer=answer)
    output.item(done, ident=done.id, lines=lambda: [_said(done)])


@requests.command()
@click.argument("number", metavar="ID", type=int)
@click.option("--answer", metavar="TEXT", required=True, help="Why not.")
@reading
def decline(*, number: int, answer: str, output: Output) -> None:
    """Decline a request, and say why."""
    with open_client() as client:
        done = client.decide_quota(number, "decline", answer=answer)
    output.item(done, ident=done.id, lines=lambda: [_said(done)])


@requests.command()
@click.argument("number", metavar="ID", type=int)
@reading
def withdraw(*, number: int, output: Output) -> None:
    """Take back what you asked for."""
    with open_client() as client:
        done = client.withdraw_quota(number)
    output.item(done, ident=done.id, lines=lambda: [_said(done)])


def _state(one: QuotaRequest) -> str:
    is_other = one.granted is not None and one.granted != one.slots
    return f"{one.state} {one.granted}" if is_other else one.state


def _said(one: QuotaRequest) -> str:
    return printable(f"Request {one.id} is {_state(one)}: {one.words}")
