"""muster audit: who changed what."""

from __future__ import annotations

import json
from typing import Any

import click

from muster.commands.output import Output, limited, reading
from muster.commands.session import open_client
from muster.render import clock
from muster.teams.models_teams import AuditEntry


@click.command()
@click.option("--team", metavar="TEAM", help="Only changes within this team.")
@click.option("--actor", metavar="USER", help="Only changes by this user.")
@click.option("--act", metavar="ACT", help="Only this kind of change, for example token.made.")
@limited(50)
@click.option("--all", "is_all", is_flag=True, help="Show all, without a limit.")
@reading
def audit(*, limit: int, is_all: bool, output: Output, **filters: Any) -> None:
    """List recorded changes, newest first (administrators only)."""
    with open_client() as client:
        found = list(client.audit(limit=None if is_all else limit, **filters))
    output.items(
        found,
        ident=lambda entry: entry.id,
        headers=("AT", "WHO", "DID", "TO", "TEAM", "FROM", "CHANGE"),
        row=_row,
        empty="No entries: use fewer filters to see more.",
    )


def _row(entry: AuditEntry) -> tuple[object, ...]:
    to = " ".join(filter(None, [entry.target_kind, entry.target_name or entry.target_id]))
    return (clock(entry.at), entry.actor, entry.act, to, entry.team, entry.ip, _change(entry))


def _change(entry: AuditEntry) -> str:
    """Return the differences, field by field; of something made or removed, all fields."""
    before = entry.before if isinstance(entry.before, dict) else {}
    after = entry.after if isinstance(entry.after, dict) else {}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name}: {_text(before.get(name))} > {_text(after.get(name))}" for name in names)


def _text(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)
