"""muster me, version, schema, open: about the user, the server and the client."""

from __future__ import annotations

import webbrowser

import click

from muster.client import Client
from muster.commands.output import Output, as_json, as_yaml, reading, say
from muster.commands.session import job_names, open_client
from muster.errors import MusterError
from muster.http.version import VERSION
from muster.jobs.models import Me
from muster.render import clock, printable


@click.command()
@reading
def me(*, output: Output) -> None:
    """Show the server, the user, the teams and the token in use."""
    with open_client() as client:
        found = client.me()
        output.item(found, ident=found.user, lines=lambda: _about(found, url=client.url))


@click.command()
def version() -> None:
    """Show the version of this client, and of the server if it can be reached."""
    say(f"muster {VERSION}")
    try:
        with open_client() as client:
            say(f"server {client.me().version} at {client.url}")
    except MusterError:
        pass


@click.command()
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), default="json", help="Output format.")
def schema(*, output: str) -> None:
    """Print the server's OpenAPI description."""
    with open_client() as client:
        found = client.schema()
    click.echo(as_yaml(found) if output == "yaml" else as_json(found))


@click.command("open")
@click.argument("job", metavar="[JOB]", required=False, shell_complete=job_names)
@click.option("--print", "is_printing", is_flag=True, help="Print the address instead of opening it.")
def open_page(*, job: str | None, is_printing: bool) -> None:
    """Open the page of a job, or the list of jobs, in the browser."""
    with open_client() as client:
        address = _address(client, job=job)
    if is_printing or not webbrowser.open(address):
        say(address)


def _address(client: Client, *, job: str | None) -> str:
    """Return the address to open.

    A job's address comes from the server; anything but a web address is not opened in a browser.
    """
    if job is None:
        return f"{client.url}/jobs"
    url = client.job(job).url
    return url if url.startswith(("http://", "https://")) else f"{client.url}/jobs"


def _about(me: Me, *, url: str) -> list[str]:
    teams = ", ".join(f"{team.name} ({team.role})" for team in me.teams) or "none: ask an administrator to add you"
    lines = [f"user     {me.user}{' (administrator)' if me.is_admin else ''}", f"teams    {teams}", f"server   {url}"]
    if me.version:
        lines.append(f"version  {me.version}")
    if me.token:
        may = f", scope {me.token.scope}" if me.token.scope else ""
        until = f", expires {clock(me.token.expires_at)}" if me.token.expires_at else ""
        lines.append(f"token    {me.token.name} ({me.token.prefix}...){may}{until}")
    return [printable(line) for line in lines]
