"""muster tokens: API tokens for programs."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from muster.client import Client
from muster.commands.output import Output, note, reading, say
from muster.commands.session import open_client
from muster.errors import NotFound
from muster.render import ago, clock, duration
from muster.teams.models_teams import Token


@click.group(invoke_without_command=True)
@reading
@click.pass_context
def tokens(ctx: click.Context, *, output: Output) -> None:
    """List your tokens with their scope, expiry and last use."""
    if ctx.invoked_subcommand is None:
        _list(output)


@tokens.command("list")
@reading
def list_tokens(*, output: Output) -> None:
    """List your tokens."""
    _list(output)


@tokens.command()
@click.argument("name")
@click.option("--scope", type=click.Choice(["read", "submit", "manage"]), help="Scope of the token (default: submit).")
@click.option("--team", metavar="TEAM", help="Limit the token to this team.")
@click.option(
    "--days",
    "expires_in_days",
    metavar="N",
    type=click.IntRange(1, 365),
    help="Days until the token expires (default: 90).",
)
@click.option("--service-account", metavar="ACCOUNT", help="Create it for this service account instead of for you.")
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
    """Create a token. It is printed only this once; with -q nothing else is printed."""
    with open_client() as client:
        made = client.create_token(
            name, scope=scope, team=team, expires_in_days=expires_in_days, service_account=service_account
        )
    output.item(made, ident=made.text, lines=lambda: [made.text])
    if output == Output():
        summary = f"Token {made.id} ({made.name}): scope {made.scope}, expires {clock(made.expires_at)}"
        note(f"{summary}. It is not shown again.")


@tokens.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def revoke(*, ids: tuple[str, ...]) -> None:
    """Revoke tokens. ID is a token's number, or its name or prefix if only one token has it."""
    with open_client() as client:
        for ident in ids:
            token_id = _id_of(client, ident)
            client.revoke_token(token_id)
            say(f"Revoked token {token_id}")


def _id_of(client: Client, ident: str) -> int:
    if ident.isdigit():
        return int(ident)
    found = [one for one in client.tokens() if ident in (one.name, one.prefix) and one.revoked_at is None]
    if len(found) == 1:
        return found[0].id
    count = "several tokens are" if found else "no token is"
    raise NotFound(404, detail=f"{count} called {ident}", hint="`muster tokens` lists them with their numbers")


def _list(output: Output) -> None:
    with open_client() as client:
        found = client.tokens()
    now = datetime.now(timezone.utc)
    output.items(
        found,
        ident=lambda token: token.id,
        headers=("ID", "NAME", "PREFIX", "SCOPE", "TEAM", "USER", "STATE", "LAST USED"),
        row=lambda token: _row(token, now=now),
        empty="No tokens: `muster tokens create NAME` creates one.",
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
