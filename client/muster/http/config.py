"""Which server to use, and with which token.

`$MUSTER_CONFIG`, or else `$XDG_CONFIG_HOME/muster/config.json`, contains several named servers, one of them current:

    {"current": "lab", "servers": {"lab": {"url": "https://...", "token": "...", "user": "ada"}}}

`MUSTER_URL` (an address, or the name of a saved server) and `MUSTER_TOKEN` win over the file.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from muster.errors import ConfigError, NotLoggedIn
from muster.http.disk import replace_file

Environ = Mapping[str, str]


@dataclass(frozen=True)
class Server:
    url: str
    token: str = field(default="", repr=False)
    user: str = ""


@dataclass(frozen=True)
class Config:
    current: str = ""
    servers: Mapping[str, Server] = field(default_factory=dict)

    def with_server(self, name: str, *, server: Server) -> Config:
        return replace(self, current=name, servers={**self.servers, name: server})

    def without(self, name: str) -> Config:
        """Return the configuration without this server.

        Where it was the current one, none takes its place: the next command should not reach another server
        unexpectedly.
        """
        left = {known: server for known, server in self.servers.items() if known != name}
        return replace(self, current="" if self.current == name else self.current, servers=left)


def config_path(environ: Environ = os.environ) -> Path:
    if environ.get("MUSTER_CONFIG"):
        return Path(environ["MUSTER_CONFIG"])
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home, "muster", "config.json")


def load(path: Path) -> Config:
    """Load the configuration; an absent file is an empty one.

    Raises ConfigError when it is invalid, or others can read it.
    """
    try:
        config = _config(json.loads(path.read_text(encoding="utf-8")))
        _check_mode(path, config=config)
        return config
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}): check its owner, or set MUSTER_CONFIG") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"{path} is not a Muster configuration: move it away and run `muster login URL` again"
        raise ConfigError(message) from error


def save(config: Config, *, path: Path) -> None:
    """Replace the file in one step, readable by its owner only: it contains tokens. Raises ConfigError."""
    content = {"current": config.current, "servers": {name: asdict(item) for name, item in config.servers.items()}}
    try:
        replace_file(path, text=json.dumps(content, indent=2) + "\n")
    except OSError as error:
        message = f"cannot write {path} ({error.strerror}): check the folder, or set MUSTER_CONFIG"
        raise ConfigError(message) from error


def find_server(
    *, url: str | None = None, token: str | None = None, name: str | None = None, environ: Environ = os.environ
) -> Server:
    """Return the server to use: arguments, then a server named explicitly, then the environment, then the file.

    MUSTER_URL may also be the name of a saved server. A token from the file goes only to the server it was saved for:
    MUSTER_URL alone never sends it elsewhere. Raises ConfigError, NotLoggedIn.
    """
    chosen = environ.get("MUSTER_URL", "").strip()
    given = token or environ.get("MUSTER_TOKEN")
    if url is None and name is None and given and _is_address(chosen):
        # Complete without the file, so a broken file does no harm.
        return Server(clean_url(chosen), _checked_token(given.strip()))
    config = load(config_path(environ))
    if url is None and name is not None:
        return _named(config, name=name)
    if url is None and chosen in config.servers:
        url = config.servers[chosen].url
    url = clean_url(url or chosen or _current(config).url)
    saved = _saved(config, url=url)
    token = token if token is not None else environ.get("MUSTER_TOKEN") or saved.token
    return Server(url, _checked_token(token.strip()), saved.user)


def clean_url(url: str) -> str:
    """Return the server's address without a trailing slash and the API's path, both easily pasted along.

    Raises ConfigError.
    """
    url = url.strip().rstrip("/")
    url = url[: -len("/api/v1")] if url.endswith("/api/v1") else url
    if not _is_address(url):
        raise ConfigError(f"{url!r} is not a server address: give it as https://host or http://host:port")
    return url


def _checked_token(token: str) -> str:
    """Return a token that can be a header value: a whole file pasted into MUSTER_TOKEN is none. Raises ConfigError."""
    if token.isascii() and token.isprintable() and " " not in token:
        return token
    raise ConfigError(
        "MUSTER_TOKEN is not a token (it contains spaces, line breaks or non-ASCII characters): paste it again"
    )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # Accessing the port validates it.
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _config(content: Any) -> Config:
    servers = {
        str(name): Server(str(item["url"]), str(item.get("token", "")), str(item.get("user", "")))
        for name, item in content.get("servers", {}).items()
    }
    return Config(str(content.get("current", "")), servers)


def _check_mode(path: Path, *, config: Config) -> None:
    """Raise ConfigError if others can read a token: they could use it too, and the user should know."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077 and any(server.token for server in config.servers.values()):
        fix = f"run `chmod 600 {path}`, and revoke the token if others use this machine (`muster tokens`)"
        raise ConfigError(f"{path} contains a token and other users can read it (mode {mode:o}): {fix}")


def _named(config: Config, *, name: str) -> Server:
    if name in config.servers:
        return config.servers[name]
    known = ", ".join(sorted(config.servers)) or "none"
    raise ConfigError(f"no server named {name} (known: {known}): `muster login URL --name {name}` adds it")


def _current(config: Config) -> Server:
    if config.current in config.servers:
        return config.servers[config.current]
    if config.servers:
        names = ", ".join(sorted(config.servers))
        raise NotLoggedIn(
            f"no server is selected (known: {names}): run `muster servers use NAME`, or give --server NAME"
        )
    raise NotLoggedIn("no server is configured: run `muster login URL`, or set MUSTER_URL and MUSTER_TOKEN")


def _saved(config: Config, *, url: str) -> Server:
    """Return what the file has on this address; the current server first, since two users may share an address."""
    current = [item for name, item in config.servers.items() if name == config.current]
    known = [item for item in [*current, *config.servers.values()] if _origin(item.url) == _origin(url)]
    return replace(known[0], url=url) if known else Server(url)


def _origin(url: str) -> tuple[str, str, int, str]:
    """Return what identifies an address: letter case and default ports do not matter (RFC 3986, section 6.2)."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, parts.hostname or "", port, parts.path
