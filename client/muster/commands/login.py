"""muster login, muster logout: obtain and save a token for a server, and revoke it."""

from __future__ import annotations

import getpass
import os
import platform
import sys
from dataclasses import replace
from typing import Any

import click

from muster.client import Client
from muster.commands.output import note
from muster.commands.servers import default_name, known
from muster.errors import Invalid, MusterError, NotLoggedIn, Unauthorized
from muster.http.config import Server, clean_url, config_path, load, save


@click.command()
@click.argument("url")
@click.option("--user", metavar="NAME", help="Your user name; prompted for if omitted.")
@click.option("--password-stdin", is_flag=True, help="Read the password from the first line of standard input.")
@click.option("--code", help="Code of your second factor, if you have one; prompted for if omitted.")
@click.option("--token", help="Use this token instead of a password.")
@click.option("--scope", type=click.Choice(["read", "submit", "manage"]), help="Scope of the token (default: submit).")
@click.option("--days", metavar="N", type=click.IntRange(1, 365), help="Days until the token expires (default: 90).")
@click.option("--name", metavar="SERVER", help="Name to save this login under (default: the host's name).")
def login(
    *,
    url: str,
    user: str | None,
    password_stdin: bool,
    code: str | None,
    token: str | None,
    scope: str | None,
    days: int | None,
    name: str | None,
) -> None:
    """Log in to the server at URL and make it the current one."""
    if token and (user or password_stdin or code or scope or days):
        raise click.UsageError("--token cannot be combined with --user, --password-stdin, --code, --scope or --days")
    url = clean_url(url)
    asked = {"code": code, "scope": scope, "expires_in_days": days}
    token = token or _token_by_password(url, user=user, is_piped=password_stdin, **asked)
    who = _owner(url, token=token)
    path = config_path()
    name = name or default_name(url)
    save(load(path).with_server(name, server=Server(url, token, who)), path=path)
    click.echo(f"Logged in to {url} as {who}; saved as {name} in {path}")
    _warn_of_environment(url)


@click.command()
@click.argument("name", metavar="[SERVER]", required=False)
@click.option("--keep-token", is_flag=True, help="Delete the token here without revoking it on the server.")
def logout(*, name: str | None, keep_token: bool) -> None:
    """Revoke the saved token on its server and delete it here."""
    path = config_path()
    config = load(path)
    name = name or click.get_current_context().find_root().obj or config.current
    if not name:
        raise NotLoggedIn("no server is selected: `muster servers` lists them, `muster logout NAME` logs out of one")
    server = known(config, name=name)
    if server.token and not keep_token:
        _revoke(server, name=name)
    save(replace(config, servers={**config.servers, name: replace(server, token="", user="")}), path=path)
    click.echo(f"Logged out of {name} ({server.url})")


def _revoke(server: Server, *, name: str) -> None:
    """Revoke the token; one that the server no longer knows is as good as revoked."""
    with Client(server.url, token=server.token) as client:
        try:
            client.revoke_own_token()
        except Unauthorized:
            return
        except MusterError:
            note(f"muster: the token could not be revoked: `muster logout {name} --keep-token` deletes it here only")
            raise


def _token_by_password(url: str, *, user: str | None, is_piped: bool, **asked: Any) -> str:
    user = user or (getpass.getuser() if is_piped else click.prompt("User", default=getpass.getuser(), err=True))
    password = sys.stdin.readline().rstrip("\r\n") if is_piped else click.prompt("Password", hide_input=True, err=True)
    asked |= {"password": password, "name": f"muster on {platform.node() or 'a computer'}"}
    with Client(url, token="") as client:
        try:
            return client.login(user, **asked).token
        except Invalid as error:
            if is_piped or asked["code"] or "code" not in [one.field for one in error.problems]:
                raise
        return client.login(user, **{**asked, "code": click.prompt("Code of your second factor", err=True)}).token


def _owner(url: str, *, token: str) -> str:
    """Return the token's user. The request also proves that the token works, before it is saved."""
    with Client(url, token=token) as client:
        try:
            return client.me().user
        except Unauthorized as error:
            raise Unauthorized(
                401,
                detail=f"{url} does not accept this token",
                hint="create a new one on the server's web page, or omit --token to log in with a password",
            ) from error


def _warn_of_environment(url: str) -> None:
    """Warn if the environment overrides this login, which would seem not to work."""
    other = os.environ.get("MUSTER_URL")
    if other and clean_url(other) != url:
        note(f"muster: MUSTER_URL={other} is set and takes precedence over this login: unset it")
    elif os.environ.get("MUSTER_TOKEN"):
        note("muster: MUSTER_TOKEN is set and takes precedence over this login: unset it")
