"""muster teams: teams, their members and their service accounts."""

from __future__ import annotations

import click

from muster.commands.output import Output, reading, say
from muster.commands.session import open_client
from muster.render import printable
from muster.teams.models_teams import Member, Team

# The server defines what roles may do, and refuses an unknown one.
ROLE = click.option("--role", metavar="ROLE", required=True, help="viewer, member or admin.")


@click.group(invoke_without_command=True)
@reading
@click.pass_context
def teams(ctx: click.Context, *, output: Output) -> None:
    """List your teams; see the commands below for members and service accounts."""
    if ctx.invoked_subcommand is None:
        _list(output)


@teams.command("list")
@reading
def list_teams(*, output: Output) -> None:
    """List your teams."""
    _list(output)


@teams.command()
@click.argument("team")
@reading
def show(*, team: str, output: Output) -> None:
    """Show a team and its members."""
    with open_client() as client:
        found = client.team(team)
        people = client.members(team) if output == Output() else []
    head = f"team {found.name}" + (f", you are {found.role}" if found.role else "")
    output.item(found, ident=found.name, lines=lambda: [printable(head)])
    if output == Output():
        _show_members(people, output=output, team=team)


@teams.command()
@click.argument("team")
@reading
def create(*, team: str, output: Output) -> None:
    """Create a team (platform administrators only)."""
    with open_client() as client:
        found = client.create_team(team)
    output.item(found, ident=found.name, lines=lambda: [printable(f"Created team {found.name}")])


@teams.group()
def members() -> None:
    """List, add, change and remove members."""


@members.command("list")
@click.argument("team")
@reading
def list_members(*, team: str, output: Output) -> None:
    """List the members of a team and their roles."""
    with open_client() as client:
        _show_members(client.members(team), output=output, team=team)


@members.command()
@click.argument("team")
@click.argument("user")
@ROLE
@reading
def add(*, team: str, user: str, role: str, output: Output) -> None:
    """Add a user to a team."""
    _set(team, user=user, role=role, output=output)


@members.command("set")
@click.argument("team")
@click.argument("user")
@ROLE
@reading
def set_role(*, team: str, user: str, role: str, output: Output) -> None:
    """Change a member's role."""
    _set(team, user=user, role=role, output=output)


@members.command()
@click.argument("team")
@click.argument("user")
def remove(*, team: str, user: str) -> None:
    """Remove a member. Their jobs are kept."""
    with open_client() as client:
        client.remove_member(team, user)
    say(f"{user} is no longer in {team}")


@teams.group()
def accounts() -> None:
    """List, add and remove service accounts, the users of programs."""


@accounts.command("list")
@click.argument("team")
@reading
def list_accounts(*, team: str, output: Output) -> None:
    """List a team's service accounts."""
    with open_client() as client:
        found = client.service_accounts(team)
    empty = f"No service accounts: `muster teams accounts add {team} NAME --role member` creates one."
    output.items(found, ident=lambda one: one.username, headers=("ACCOUNT", "ROLE", "STATE"), row=_row, empty=empty)


@accounts.command("add")
@click.argument("team")
@click.argument("name")
@ROLE
@reading
def add_account(*, team: str, name: str, role: str, output: Output) -> None:
    """Create a service account."""
    with open_client() as client:
        found = client.create_service_account(team, name, role=role)
    token = f"muster tokens create NAME --service-account {found.username}"
    lines = [f"Created service account {found.username} ({found.role}) of {team}; `{token}` creates a token for it"]
    output.item(found, ident=found.username, lines=lambda: [printable(line) for line in lines])


@accounts.command("remove")
@click.argument("team")
@click.argument("name")
def remove_account(*, team: str, name: str) -> None:
    """Remove a service account. Its tokens become invalid."""
    with open_client() as client:
        client.remove_service_account(team, name)
    say(f"{name} is no longer a service account of {team}")


def _list(output: Output) -> None:
    with open_client() as client:
        found = client.teams()
    output.items(
        found,
        ident=lambda team: team.name,
        headers=("TEAM", "YOUR ROLE"),
        row=_team_row,
        empty="You are not in a team: ask an administrator to add you to one.",
    )


def _set(team: str, *, user: str, role: str, output: Output) -> None:
    with open_client() as client:
        found = client.set_member(team, user, role=role)
    output.item(found, ident=found.username, lines=lambda: [printable(f"{found.username} is {found.role} of {team}")])


def _show_members(people: list[Member], *, output: Output, team: str) -> None:
    empty = f"{team} has no members: `muster teams members add {team} USER --role member` adds one."
    output.items(people, ident=lambda one: one.username, headers=("USER", "ROLE", "STATE"), row=_row, empty=empty)


def _team_row(team: Team) -> tuple[object, ...]:
    return (team.name, team.role)


def _row(member: Member) -> tuple[object, ...]:
    state = "" if member.is_active else "inactive"
    return (member.username, member.role, "service account" if member.is_service_account else state)


@teams.command()
@click.argument("team")
@reading
def allowed(*, team: str, output: Output) -> None:
    """List the objects of clusters that pods of a team's jobs may name."""
    with open_client() as client:
        found = client.allowed_objects(team)
    output.items(
        found,
        ident=lambda one: one.id,
        headers=("ID", "CLUSTER", "KIND", "NAME", "BY"),
        row=lambda one: (one.id, one.cluster, one.kind, one.name, one.created_by or ""),
        empty=f"Nothing is allowed: `muster teams allow {team} --cluster NAME KIND NAME` allows an object.",
    )


@teams.command()
@click.argument("team")
@click.argument(
    "kind",
    metavar="KIND",
    type=click.Choice(["service_account", "token", "pull_secret", "secret", "config_map", "claim"]),
)
@click.argument("name")
@click.option("--cluster", metavar="NAME", required=True, help="Cluster in which the object is.")
@reading
def allow(*, team: str, cluster: str, kind: str, name: str, output: Output) -> None:
    """Allow pods of a team's jobs to name an object of a cluster (platform administrators only).

    KIND is service_account, token, pull_secret, secret, config_map or claim. A token is that of a service account of
    this name, mounted into the pods.
    """
    with open_client() as client:
        made = client.allow_object(team, cluster=cluster, kind=kind, name=name)
    line = f"Pods of team {team} may name {made.kind} {made.name} on cluster {made.cluster}"
    output.item(made, ident=made.id, lines=lambda: [printable(line)])


@teams.command()
@click.argument("team")
@click.argument("number", type=int)
def forbid(*, team: str, number: int) -> None:
    """Take an object off that list, by its ID (platform administrators only)."""
    with open_client() as client:
        client.forbid_object(team, number)
    say(f"no longer allowed to team {team}")
