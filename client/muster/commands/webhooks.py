"""muster webhooks: notify other programs of a team's jobs."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from typing import Any

import click

from muster.commands.output import Output, note, reading, say
from muster.commands.session import open_client, team_and_name
from muster.render import ago, clock, printable
from muster.teams.models_webhooks import Delivery, Webhook

EVENTS = ["start", "end", "failure"]
ON = click.option("--on", "events", type=click.Choice(EVENTS), multiple=True, help="Event; may be repeated.")
FORMAT = click.option("--format", type=click.Choice(["json", "slack"]), help="Format of what is sent (default: json).")
RANGE = click.option(
    "--all-jobs/--named-only", "all_jobs", default=None, help="Every job of the team, or only those that name it."
)
URL = click.option("--url-stdin", is_flag=True, help="Read the URL from the standard input instead of a prompt.")


@click.group()
def webhooks() -> None:
    """Webhooks of a team: addresses that are notified when its jobs start, end or fail."""


@webhooks.command("list")
@click.argument("team")
@reading
def list_webhooks(*, team: str, output: Output) -> None:
    """List a team's webhooks."""
    with open_client() as client:
        found = client.webhooks(team)
    output.items(
        found,
        ident=lambda one: one.name,
        headers=("WEBHOOK", "HOST", "FORMAT", "EVENTS", "JOBS", "STATE"),
        row=lambda one: (one.name, one.host, one.format, " ".join(one.events), _range(one), _state(one)),
        empty=f"No webhooks: `muster webhooks create {team} NAME --on end --on failure` creates one.",
    )


@webhooks.command()
@team_and_name
@reading
def show(*, team: str, name: str, output: Output) -> None:
    """Show one webhook."""
    with open_client() as client:
        found = client.webhook(team, name)
    output.item(found, ident=found.name, lines=lambda: _about(found))


@webhooks.command()
@team_and_name
@ON
@FORMAT
@RANGE
@URL
@reading
def create(*, team: str, name: str, events: tuple[str, ...], url_stdin: bool, output: Output, **fields: Any) -> None:
    """Create a webhook (administrators of the team). Its secret is printed only this once.

    The URL is asked for: on the command line every user of this machine could see it.
    """
    if not events:
        raise click.UsageError(f"Missing option '--on'; choose from {', '.join(EVENTS)}")
    url = _url(is_piped=url_stdin)
    with open_client() as client:
        made = client.create_webhook(team, name, url=url, events=events, **fields)
    _tell_secret(made, output=output)


@webhooks.command("set")
@team_and_name
@ON
@FORMAT
@RANGE
@click.option("--switch-on/--switch-off", "is_active", default=None, help="Enable or disable the webhook.")
@click.option("--new-url", is_flag=True, help="Prompt for a new URL.")
@URL
@reading
def set_webhook(
    *, team: str, name: str, events: tuple[str, ...], new_url: bool, url_stdin: bool, output: Output, **fields: Any
) -> None:
    """Change a webhook (administrators of the team)."""
    asked = {**fields, "events": list(events) or None}
    if new_url or url_stdin:
        asked["url"] = _url(is_piped=url_stdin)
    if all(value is None for value in asked.values()):
        raise click.UsageError("nothing to change: see the options")
    with open_client() as client:
        found = client.set_webhook(team, name, **asked)
    output.item(found, ident=found.name, lines=lambda: _about(found))


@webhooks.command()
@team_and_name
@reading
def rotate(*, team: str, name: str, output: Output) -> None:
    """Make a new signing secret; the one before is valid for another 24 hours."""
    with open_client() as client:
        made = client.rotate_webhook(team, name)
    _tell_secret(made, output=output)


@webhooks.command()
@team_and_name
@reading
def test(*, team: str, name: str, output: Output) -> None:
    """Send a test; `deliveries` shows what became of it."""
    with open_client() as client:
        sent = client.test_webhook(team, name)
    line = f"Test {sent.id} is on its way: `muster webhooks deliveries {team} {name}` shows what became of it"
    output.item(sent, ident=sent.id, lines=lambda: [printable(line)])


@webhooks.command()
@team_and_name
def delete(*, team: str, name: str) -> None:
    """Delete a webhook and its history."""
    with open_client() as client:
        client.delete_webhook(team, name)
    say(f"{name} is no longer a webhook of {team}")


@webhooks.command()
@team_and_name
@click.option("-n", "--limit", metavar="N", type=click.IntRange(min=1), default=20, help="Maximum number to show.")
@reading
def deliveries(*, team: str, name: str, limit: int, output: Output) -> None:
    """List a webhook's deliveries, newest first."""
    with open_client() as client:
        found = list(client.deliveries(team, name, limit=limit))
    now = datetime.now(timezone.utc)
    output.items(
        found,
        ident=lambda one: one.id,
        headers=("ID", "EVENT", "JOB", "WHEN", "STATE", "TRIES", "ANSWER"),
        row=lambda one: _row(one, now=now),
        empty=f"Nothing yet: `muster webhooks test {team} {name}` sends a test.",
    )


@webhooks.command()
@team_and_name
@click.argument("delivery", type=int)
@reading
def again(*, team: str, name: str, delivery: int, output: Output) -> None:
    """Send a delivery once more; it keeps its id."""
    with open_client() as client:
        sent = client.send_again(team, name, delivery)
    output.item(sent, ident=sent.id, lines=lambda: [f"Delivery {sent.id} is sent again"])


def _url(*, is_piped: bool) -> str:
    if is_piped:
        return sys.stdin.readline().strip()
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask for the URL on: give it on the standard input, with --url-stdin")
    url: str = click.prompt("URL", hide_input=True, err=True)
    return url


def _tell_secret(made: Webhook, *, output: Output) -> None:
    output.item(made, ident=made.secret, lines=lambda: [printable(made.secret)])
    if output == Output():
        note(f"The signing secret of webhook {made.name}. It is not shown again; Slack does not need it.")


def _about(webhook: Webhook) -> list[str]:
    lines = [
        f"webhook {webhook.name}, {_state(webhook)}",
        f"host     {webhook.host}",
        f"format   {webhook.format}",
        f"events   {', '.join(webhook.events)} of {_range(webhook)}",
    ]
    if webhook.old_secret_until:
        lines.append(f"the secret before is valid until {clock(webhook.old_secret_until)}")
    return [printable(line) for line in lines]


def _range(webhook: Webhook) -> str:
    return "every job" if webhook.all_jobs else "jobs that name it"


def _state(webhook: Webhook) -> str:
    return "on" if webhook.is_active else "off"


def _row(one: Delivery, *, now: datetime) -> tuple[object, ...]:
    answer = one.error or (one.status_code if one.status_code is not None else "")
    state = f"next try {clock(one.next_try_at)}" if one.state == "waiting" and one.tries else one.state
    return (one.id, one.event, one.job or "", ago(one.created_at, now=now), state, one.tries, answer)
