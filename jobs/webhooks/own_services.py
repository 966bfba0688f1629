"""The installation's own services, which no webhook may reach, whatever networks are allowed.

Postgres, Redis, object storage, API servers and metrics are recognised by address and port. Pages and API are recognised by host name:
behind one proxy other sites share their address, and Muster itself refuses requests for other names. The port that this
machine's web process listens at is recognised by any spelling of an address of this machine. Processes of ours on other
machines are not recognised: their addresses change, and other programs use their ports too (docs/webhooks.md).
"""

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from jobs.clusters.kubernetes import endpoints
from queues import clusters

Address = IPv4Address | IPv6Address
_PORTS = {"redis": 6379, "rediss": 6379, "http": 80, "https": 443}
_WEB_PORT = 8000  # of `muster-server web`


@dataclass(frozen=True)
class Service:
    """One service: what it is, in words, and where. `host` is a name or an address."""

    what: str
    host: str
    port: int


def services() -> list[Service]:
    """Return what is recognised by address and port."""
    storage = _object_storage(settings.STORAGES["default"])
    web = Service("Muster's own pages", "127.0.0.1", _web_port())
    return [web, *_database(), *_redis(), *storage, *_metrics(), *_collector(), *_clusters()]


def named(host: str, port: int) -> str:
    """Return which of our own pages a host name and port lead to, "" for none."""
    known = {one.lower().strip("[]") for one in settings.ALLOWED_HOSTS if one and not one.startswith((".", "*"))}
    ports = {80, 443, _web_port()}
    for url in (settings.PUBLIC_URL, *settings.CSRF_TRUSTED_ORIGINS):
        if (own := _of_url("", url)) and own.host:
            known.add(own.host)
            ports.add(own.port)
    return "Muster's own pages" if host.lower().strip("[]").rstrip(".") in known and port in ports else ""


def _web_port() -> int:
    return int(os.environ.get("MUSTER_LISTEN_PORT") or _WEB_PORT)


def at(address: Address, port: int, *, among: list[Service]) -> str:
    """Return which of `among` answers at this address and port, "" for none. Looks up their names."""
    for one in among:
        if one.port == port and any(_is_same(address, own) for own in _lookup(one.host)):
            return one.what
    return ""


def _is_same(address: Address, own: str) -> bool:
    """Whether both lead to the same machine. A service on this machine may listen at all of its addresses."""
    return str(address) == own or (is_local(own) and is_local(str(address)))


def is_local(address: str) -> bool:
    """Whether the address is one of this machine's own: only such a one can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _lookup(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return sorted({str(one[4][0]) for one in found})


def _database() -> Iterator[Service]:
    """Yield each host of a list with its port, as libpq reads both: one port for all, or one for each."""
    database = settings.DATABASES["default"]
    hosts = str(database.get("HOST") or "").split(",")
    ports = str(database.get("PORT") or "").split(",")
    for host, port in zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False):
        if not host.startswith("/"):  # not a folder with a socket
            yield Service("Muster's database", host or "localhost", int(port or 5432))


def _redis() -> Iterator[Service]:
    if found := _of_url("Muster's Redis", settings.REDIS_URL):
        yield found


def _object_storage(storage: Mapping[str, Any]) -> Iterator[Service]:
    """Yield where code and logs are, and where they are still moving from."""
    options = storage.get("OPTIONS", {})
    if found := _of_url("Muster's object storage", str(options.get("endpoint") or "")):
        yield found
    for one in options.values():
        if isinstance(one, Mapping) and "BACKEND" in one:
            yield from _object_storage(one)


def _metrics() -> Iterator[Service]:
    host, _, port = settings.MUSTER_METRICS.rpartition(":")
    if port:
        yield Service("Muster's metrics", host.strip("[]"), int(port))


def _collector() -> Iterator[Service]:
    if found := _of_url("Muster's collector of traces", settings.MUSTER_TRACES):
        yield found


def _clusters() -> Iterator[Service]:
    """Yield API servers, that of the cluster we may run in among them, and where agents reach the control plane."""
    for url in [*endpoints.urls({}), *(url for one in clusters.entries().values() for url in _servers(one))]:
        if found := _of_url("the API server of a cluster", url):
            yield found
    for one in clusters.entries().values():
        if found := _of_url("Muster itself", str(one.options.get("CONTROL_URL", ""))):
            yield found


def _servers(entry: clusters.Entry) -> list[str]:
    return [entry.server] if entry.server else endpoints.urls(entry.options)


def _of_url(what: str, url: str) -> Service | None:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    return Service(what, parts.hostname.lower(), port) if parts.hostname and port else None
