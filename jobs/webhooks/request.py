"""One HTTP request to a receiver: to an address that was checked, bounded in time and size, without redirects."""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import httpx

from common.telemetry.redaction import one_line, without_secrets

from .addresses import Target

SECONDS = 10.0  # for the whole request, connecting included
CONNECT_SECONDS = 3.0  # for each address
MOST_ANSWER = 4096  # bytes; nothing in them is used
MOST_WAIT = 3600  # seconds that a receiver may ask us to wait
MOST_ERROR = 200
TRIED = 3  # addresses of one name


@dataclass(frozen=True)
class SendResult:
    """How a request ended. `status` is None without an answer; `error` is "" where it was received."""

    status: int | None
    error: str = ""
    retry_after: int = 0  # seconds
    is_final: bool = False  # sending it again is of no use

    @property
    def is_received(self) -> bool:
        return not self.error


@lru_cache(maxsize=1)
def tls() -> ssl.SSLContext:
    """Return the context of all requests: the authorities that httpx knows, and those of this machine."""
    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    return context


def post(target: Target, addresses: list[str], *, body: bytes, headers: Mapping[str, str]) -> SendResult:
    """Send a body to the first of the addresses that accepts a connection. Never raises for what a receiver does."""
    try:
        return asyncio.run(_post(target, addresses, body, headers=headers))
    except TimeoutError:
        return SendResult(None, f"no answer within {SECONDS:.0f} s")
    except httpx.HTTPError as error:
        return SendResult(None, _words(error))


async def _post(target: Target, addresses: list[str], body: bytes, *, headers: Mapping[str, str]) -> SendResult:
    *others, last = addresses[:TRIED]
    async with asyncio.timeout(SECONDS), _client() as client:
        for address in others:
            with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await _ask(client, target, address, body=body, headers=headers)
        return await _ask(client, target, last, body=body, headers=headers)


def _client() -> httpx.AsyncClient:
    # No proxy from the environment: it would look up the name again, and reach what we may not.
    limits = httpx.Timeout(SECONDS, connect=CONNECT_SECONDS)
    return httpx.AsyncClient(verify=tls(), trust_env=False, follow_redirects=False, timeout=limits)


async def _ask(
    client: httpx.AsyncClient, target: Target, address: str, *, body: bytes, headers: Mapping[str, str]
) -> SendResult:
    """Ask the address itself. The name stays in Host, and is what the certificate must be for."""
    url = target.url.copy_with(host=address)
    named = {**headers, "Host": target.url.netloc.decode("ascii")}
    extensions = {"sni_hostname": target.host}
    async with client.stream("POST", url, content=body, headers=named, extensions=extensions) as response:
        read = 0
        async for piece in response.aiter_raw(1024):
            read += len(piece)
            if read >= MOST_ANSWER:
                break
        return _answer(response)


def _answer(response: httpx.Response) -> SendResult:
    status = response.status_code
    if response.is_success:
        return SendResult(status)
    if response.is_redirect or 300 <= status < 400:
        return SendResult(status, f"answered {status}, a redirect, which is not followed; enter the final URL")
    wait = response.headers.get("Retry-After", "")
    seconds = min(int(wait[:6]), MOST_WAIT) if wait.isascii() and wait.isdecimal() else 0
    return SendResult(status, f"answered {status}", seconds, is_final=status == httpx.codes.GONE)


def _words(error: httpx.HTTPError) -> str:
    kinds = {
        httpx.ConnectError: "cannot connect",
        httpx.TimeoutException: f"no answer within {SECONDS:.0f} s",
        httpx.RemoteProtocolError: "the answer is not HTTP",
    }
    words = next((words for kind, words in kinds.items() if isinstance(error, kind)), "the connection was lost")
    cause = one_line(without_secrets(str(error)[: 4 * MOST_ERROR]))
    return f"{words}: {cause}"[:MOST_ERROR] if cause else words
