"""muster tokens: API tokens for programs."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from muster.client import Client
from muster.commands.output import Output, note, reading, say
from muster.commands.session import open_client
from muster.errors import NotFound
from muster.models_teams import Token
from muster.render import ago, clock, duration


@click.group(invoke_without_command=True)
@reading
@click.pass_context
def tokens(ctx: click.Context, *, output: Output) -> None:
    """List your tokens: what they may do, until when, and when they were last used."""
    if ctx.invoked_subcommand is None:
        _list(output)


@tokens.command("list")
@reading
def list_tokens(*, output: Output) -> None:
    """List your tokens."""
    _list(output)


@tokens.command()
@click.argument("name")
@click.option("--scope", type=click.Choice(["read", "submit", "manage"]), help="What it may do; submit when not given.")
@click.option("--team", metavar="TEAM", help="Only within this team.")
@click.option("--days", "expires_in_days", metavar="N", type=click.IntRange(1, 365), help="How long; 90 by default.")
@click.option("--service-account", metavar="ACCOUNT", help="For this account, not for you.")
@reading
def create(
    *,
    name: str,
    scope: str | None,
    team: str | None,
    expires_in_days: int | None,
    service_account: str | None,
    output: Output,
) -> None:
    """Make a token. Its text is printed this once; with -q, nothing else is."""
    with open_client() as client:
        made = client.create_token(
            name, scope=scope, team=team, expires_in_days=expires_in_days, service_account=service_account
        )
    output.item(made, ident=made.text, lines=lambda: [made.text])
    if output == Output():
        note(f"Token {made.id} ({made.name}) may {made.scope} until {clock(made.expires_at)}. It is not shown again.")


@tokens.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def revoke(*, ids: tuple[str, ...]) -> None:
    """Make tokens useless. ID is a number, or the token's name or prefix where that is enough to tell it."""
    with open_client() as client:
        for ident in ids:
            token_id = _id_of(client, ident)
            client.revoke_token(token_id)
            say(f"Token {token_id} is revoked")


def _id_of(client: Client, ident: str) -> int:
    if ident.isdigit():
        return int(ident)
    found = [one for one in client.tokens() if ident in (one.name, one.prefix) and one.revoked_at is None]
    if len(found) == 1:
        return found[0].id
    said = "several tokens are" if found else "no token is"
    raise NotFound(404, detail=f"{said} called {ident}", hint="`muster tokens` lists them with their numbers")


def _list(output: Output) -> None:
    with open_client() as client:
        found = client.tokens()
    now = datetime.now(timezone.utc)
    output.items(
        found,
        ident=lambda token: token.id,
        headers=("ID", "NAME", "PREFIX", "SCOPE", "TEAM", "USER", "STATE", "LAST USED"),
        row=lambda token: _row(token, now=now),
        empty="No tokens: `muster tokens create NAME` makes one.",
    )


def _row(token: Token, *, now: datetime) -> tuple[object, ...]:
    used = ago(token.last_used_at, now=now) or "never"
    return (token.id, token.name, token.prefix, token.scope, token.team, token.user, _state(token, now=now), used)


def _state(token: Token, *, now: datetime) -> str:
    if token.revoked_at:
        return "revoked"
    if token.expires_at is None:
        return "valid"
    left = (token.expires_at - now).total_seconds()
    return f"valid for {duration(left)}" if left > 0 else "expired"
