"""muster volumes: shared folders of a team."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import click

from muster.commands.output import Output, reading
from muster.commands.session import open_client, team_and_name
from muster.render import ago, printable, size
from muster.teams.models_volumes import Volume

MODES = ["ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce"]
PATH = click.option("--mount-path", metavar="/PATH", help="Where jobs mount it, unless they choose their own path.")
READ_ONLY = click.option("--read-only/--writable", "is_read_only", default=None, help="Whether jobs may write to it.")


@click.group()
def volumes() -> None:
    """Volumes of a team: shared folders for data sets and checkpoints."""


@volumes.command("list")
@click.argument("team")
@reading
def list_volumes(*, team: str, output: Output) -> None:
    """List a team's volumes."""
    with open_client() as client:
        found = client.volumes(team)
    output.items(
        found,
        ident=lambda one: one.name,
        headers=("VOLUME", "CLUSTER", "SIZE", "FREE", "STATE", "USED BY"),
        row=lambda one: (
            one.name,
            one.cluster,
            one.capacity or one.size,
            "" if one.free_bytes is None else size(one.free_bytes),
            one.state,
            ", ".join(one.used_by),
        ),
        empty=f"No volumes: `muster volumes create {team} NAME --cluster CLUSTER --size 512Gi` creates one.",
    )


@volumes.command()
@team_and_name
@reading
def show(*, team: str, name: str, output: Output) -> None:
    """Show one volume: its size and state, and what uses it."""
    with open_client() as client:
        found = client.volume(team, name)
    output.item(found, ident=found.name, lines=lambda: _about(found))


@volumes.command()
@team_and_name
@click.option("--cluster", metavar="NAME", required=True, help="Cluster whose jobs mount it.")
@click.option("--size", metavar="SIZE", help="Size, such as 512Gi; not for an existing claim.")
@click.option("--claim", metavar="NAME", help="Existing claim that the team may name, in place of one of Muster's own.")
@click.option("--class", "storage_class", metavar="NAME", help="Storage class (default: the cluster's).")
@click.option("--access", "access_mode", type=click.Choice(MODES), help="Access mode (default: ReadWriteMany).")
@PATH
@READ_ONLY
@reading
def create(*, team: str, name: str, cluster: str, output: Output, **fields: Any) -> None:
    """Create a volume (administrators of the team). Its storage is made with its first use."""
    with open_client() as client:
        made = client.create_volume(team, name, cluster=cluster, **fields)
    output.item(made, ident=made.name, lines=lambda: _about(made))


@volumes.command("set")
@team_and_name
@click.option("--size", metavar="SIZE", help="Larger size, such as 1Ti.")
@PATH
@READ_ONLY
@reading
def set_volume(*, team: str, name: str, output: Output, **fields: Any) -> None:
    """Change a volume (administrators of the team). It can grow and never shrinks."""
    if all(value is None for value in fields.values()):
        raise click.UsageError("nothing to change: give --size, --mount-path, --read-only or --writable")
    with open_client() as client:
        found = client.set_volume(team, name, **fields)
    output.item(found, ident=found.name, lines=lambda: _about(found))


@volumes.command()
@team_and_name
@reading
def delete(*, team: str, name: str, output: Output) -> None:
    """Delete a volume that nothing uses, with its data; an existing claim that it adopted stays."""
    with open_client() as client:
        found = client.delete_volume(team, name)
    output.item(found, ident=found.name, lines=lambda: [printable(f"volume {name} of {team} is being deleted")])


def _about(one: Volume) -> list[str]:
    now = datetime.now(timezone.utc)
    seen = f", as of {ago(one.as_of, now=now)}" if one.as_of else ""
    free = "" if one.free_bytes is None else f"{size(one.free_bytes)} of {size(one.total_bytes or 0)}{seen}"
    facts = {
        "volume": one.name,
        "cluster": one.cluster,
        "state": f"{one.state}: {one.message}" if one.message else one.state,
        "size": one.capacity or one.size,
        "free": free,
        "written": ago(one.written_at, now=now) if one.written_at else "",
        "access": f"{one.access_mode}{', read-only for jobs' if one.is_read_only else ''}",
        "path": one.mount_path or (f"/muster/volumes/{one.name}" if one.claim else ""),
        "claim": one.claim,
        "used by": ", ".join(one.used_by) or "nothing",
    }
    return [f"{name:<9} {printable(text)}" for name, text in facts.items() if text]
