"""Where the current request came from: the address and the program, for the audit.

By default only the connection's own address is trusted. A header that names another address counts only when written by
a proxy that the installation lists (`MUSTER_TRUSTED_PROXIES`); any other client could write anything there.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from django.conf import settings
from django.http import HttpRequest

from .middleware import Middleware

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

USER_AGENT_LENGTH = 200


@dataclass(frozen=True)
class Origin:
    """Address and user agent of a request. `ip` None: no request (a command, a task), or a socket without addresses."""

    ip: str | None = None
    user_agent: str = ""


_present: ContextVar[Origin] = ContextVar("origin", default=Origin())  # noqa: B039 - frozen


def origin() -> Origin:
    return _present.get()


@contextmanager
def coming_from(found: Origin) -> Iterator[None]:
    before = _present.set(found)
    try:
        yield
    finally:
        _present.reset(before)


def client_address(remote: str, forwarded: str, trusted: Iterable[Network]) -> str | None:
    """Return the nearest address that is not a trusted proxy's, read from the right, where our own proxies append."""
    trusted, found = list(trusted), None
    for text in [remote, *reversed(forwarded.split(","))]:
        address = _address(text)
        if address is None:
            break
        found = address
        if not any(address in network for network in trusted):
            break
    return str(found) if found else None


def origin_of(request: HttpRequest) -> Origin:
    seen = request.META
    remote, forwarded = seen.get("REMOTE_ADDR", ""), seen.get("HTTP_X_FORWARDED_FOR", "")
    ip = client_address(remote, forwarded, settings.TRUSTED_PROXIES)
    agent = "".join(letter for letter in seen.get("HTTP_USER_AGENT", "") if letter.isprintable())
    return Origin(ip, agent[:USER_AGENT_LENGTH])


def _address(text: str) -> Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class NoteOrigin(Middleware):
    """Set the origin while a request is answered."""

    def around(self, request: HttpRequest) -> AbstractContextManager[None]:
        return coming_from(origin_of(request))
