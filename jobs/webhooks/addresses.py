"""Which addresses a webhook may have, so that nobody can make the server send requests into its own network.

Checked when a webhook is saved, for an early error, and again for every request: `reachable` returns addresses, not a
name, and the request goes to one of them. So a name that is looked up twice with two results gains nothing.
"""

import re
import socket
from dataclasses import dataclass
from ipaddress import ip_address

import httpx
from django.conf import settings

from common.errors import InvalidInput, Problem
from common.http.public_addresses import Address, is_in, is_public, unwrapped

from . import own_services

MOST_CHARACTERS = 2000
MOST_ADDRESSES = 16  # of one name
SETTING = "MUSTER_WEBHOOK_NETWORKS"
_HOST = re.compile(rb"[a-z0-9._-]{1,253}|[0-9a-f:.]{2,45}", re.IGNORECASE)  # of a name as it is looked up, or IPv6
_PORTS = range(1, 65536)


@dataclass(frozen=True)
class Target:
    """A URL that a request may be sent to, as far as its text shows. `place` is what may be shown of it."""

    url: httpx.URL
    host: str
    port: int

    @property
    def place(self) -> str:
        return place_of(self.host, self.port)


def place_of(host: str, port: int) -> str:
    """Return host and port as they are shown, the port only where it is not that of HTTPS."""
    shown = f"[{host}]" if ":" in host else host
    return shown if port == 443 else f"{shown}:{port}"


def parse(text: str) -> Target:
    """Read a URL. Raises InvalidInput, in which only host and port of it appear: its path may be a secret."""
    try:
        url = httpx.URL(text) if len(text) <= MOST_CHARACTERS else None
    except (httpx.InvalidURL, UnicodeError, ValueError):
        url = None
    if url is None or not _is_usual(url):
        raise _refused(
            None, f"is not a URL of at most {MOST_CHARACTERS} characters; write one such as https://example.com/hook"
        )
    host = url.raw_host.decode("ascii").rstrip(".")
    target = Target(url, host, url.port or (443 if url.scheme == "https" else 80))
    if url.userinfo:
        raise _refused(target.place, "holds a user name or password; remove it: requests are signed instead")
    if url.fragment:
        raise _refused(target.place, "has a part behind #, which is never sent; remove it")
    return target


def _is_usual(url: httpx.URL) -> bool:
    is_port = url.port is None or url.port in _PORTS
    return url.scheme in ("http", "https") and is_port and bool(_HOST.fullmatch(url.raw_host))


def reachable(target: Target) -> list[str]:
    """Look the host up and return its addresses, all of which may be called.

    Raises InvalidInput for a name without addresses, and where any of them may not be called.
    """
    if page := own_services.named(target.host, target.port):
        raise _refused(target.place, f"leads to {page}; enter the address of another program")
    found, own = _lookup(target), own_services.services()
    for address in found:
        if words := refusal(address, target, own=own):
            raise _refused(target.place, words)
    return [str(address) for address in found]


def refusal(address: Address, target: Target, *, own: list[own_services.Service]) -> str:
    """Return why this address may not be called, "" where it may."""
    inner = unwrapped(address)
    if service := own_services.at(inner, target.port, among=own):
        return f"is {inner} port {target.port}, {service}; enter the address of another program"
    if is_in(address, settings.WEBHOOK_NETWORKS):
        return ""
    if not is_public(inner):
        return f"is {inner}, which is not a public address; if requests may go there, add its network to {SETTING}"
    if target.url.scheme != "https":
        return f"is {inner}, outside {SETTING}, where only https is allowed; write https://"
    return ""


def _lookup(target: Target) -> list[Address]:
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise _refused(target.place, "cannot be looked up; check its spelling and the server's DNS") from None
    # A scope (`fe80::1%eth0`) names one of our own interfaces; without it the address is checked as any other.
    texts = dict.fromkeys(str(one[4][0]).partition("%")[0] for one in found)
    if len(texts) > MOST_ADDRESSES:
        raise _refused(target.place, f"has {len(texts)} addresses, of at most {MOST_ADDRESSES}; enter another name")
    return [ip_address(text) for text in texts]


def _refused(place: str | None, words: str) -> InvalidInput:
    return InvalidInput(Problem("url", place, f"{place} {words}" if place else words))
