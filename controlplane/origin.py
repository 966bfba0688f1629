"""From where the present request came: the address and the program, for the audit.

Whoever connects is believed only about the connection itself. A header that names another address counts only when a
proxy wrote it that the installation named (`MUSTER_TRUSTED_PROXIES`); anybody else could write anything there.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

USER_AGENT_LENGTH = 200


@dataclass(frozen=True)
class Origin:
    """`ip` None: no request (a command, a task), or a socket without addresses."""

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
    """The nearest address that no trusted proxy speaks for: read from the right, where our own proxies write."""
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


class NoteOrigin:
    """Holds the origin while a request is answered. Works for synchronous and asynchronous chains."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]):
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if self.is_async:
            return self._later(request)
        with coming_from(origin_of(request)):
            return self.get_response(request)

    async def _later(self, request: HttpRequest) -> HttpResponse:
        with coming_from(origin_of(request)):
            return await self.get_response(request)  # type: ignore[misc, no-any-return]  # a coroutine here
