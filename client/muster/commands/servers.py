"""muster servers: several servers in one configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import click

from muster.commands.output import Output, reading, say
from muster.errors import ConfigError
from muster.http.config import Config, Server, clean_url, config_path, load, save


@dataclass(frozen=True)
class Saved:
    """A saved server without its token, since lists end up in chats and issues."""

    name: str
    server: Server
    is_current: bool

    @property
    def raw(self) -> Mapping[str, Any]:
        about = {"url": self.server.url, "user": self.server.user, "has_token": bool(self.server.token)}
        return {"name": self.name, **about, "is_current": self.is_current}


@click.group(invoke_without_command=True)
@reading
@click.pass_context
def servers(ctx: click.Context, *, output: Output) -> None:
    """List the saved servers."""
    if ctx.invoked_subcommand is None:
        _list(output)


@servers.command("list")
@reading
def list_servers(*, output: Output) -> None:
    """List the saved servers."""
    _list(output)


@servers.command()
@click.argument("name")
@click.argument("url")
def add(*, name: str, url: str) -> None:
    """Save a server under a name; `muster login` adds the token."""
    config, path = load(config_path()), config_path()
    if name in config.servers:
        raise ConfigError(f"a server named {name} already exists: run `muster servers remove {name}` first")
    server = Server(clean_url(url))
    save(replace(config, current=config.current or name, servers={**config.servers, name: server}), path=path)
    say(f"Saved {server.url} as {name}; `muster login {server.url} --name {name}` logs in")


@servers.command()
@click.argument("name")
def use(*, name: str) -> None:
    """Make a server the current one."""
    config = load(config_path())
    server = known(config, name=name)
    save(replace(config, current=name), path=config_path())
    say(f"Now using {name} ({server.url})")


@servers.command()
@click.argument("name")
def remove(*, name: str) -> None:
    """Remove a saved server. Its token stays valid; `muster logout` revokes it."""
    config = load(config_path())
    known(config, name=name)
    save(config.without(name), path=config_path())
    say(f"Removed {name}")


def known(config: Config, *, name: str) -> Server:
    if name in config.servers:
        return config.servers[name]
    names = ", ".join(sorted(config.servers)) or "none"
    raise ConfigError(f"no server named {name} (known: {names}): `muster servers add {name} URL` adds it")


def default_name(url: str) -> str:
    """Return the host and port, never a user or password that was pasted along."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _list(output: Output) -> None:
    config = load(config_path())
    found = [Saved(name, server, name == config.current) for name, server in config.servers.items()]
    output.items(
        found,
        ident=lambda one: one.name,
        headers=("NAME", "URL", "USER", "CURRENT"),
        row=_row,
        empty="No servers yet: `muster login URL` adds one.",
    )


def _row(one: Saved) -> tuple[object, ...]:
    user = one.server.user if one.server.token else "not logged in"
    return (one.name, one.server.url, user, "current" if one.is_current else "")
