"""Between a `Call` and an HTTP library: what to send, whether to retry, how to read the answer. No I/O."""

from __future__ import annotations

import platform
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Callable, TypeVar, Union
from urllib.parse import urlsplit

import httpx

from muster.errors import CutOff, MusterError, NotLoggedIn, TimedOut, UnexpectedAnswer, Unreachable, from_problem
from muster.http.call import Call
from muster.http.version import VERSION

T = TypeVar("T")
Reply = Union[httpx.Response, httpx.RequestError]

API = "/api/v1"
PIECE_BYTES = 1 << 16
PASSING = (429, 502, 503, 504)  # statuses that a retry may cure
CONNECT_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
LONGEST_RETRY_AFTER_SECONDS = 60.0  # beyond it, an error is better than waiting silently
WITH_BODY = ("POST", "PUT", "PATCH")


@dataclass(frozen=True)
class Retry:
    """Passed to a client's `on_retry` before it pauses and tries again."""

    reason: str
    tried: int
    pause_seconds: float
    is_patient: bool  # retries continue for minutes, not for seconds


@dataclass(frozen=True)
class Wire:
    url: str
    token: str = field(default="", repr=False)
    timeout_seconds: float = 30.0
    chance: Callable[[], float] = random.random

    def settings(self) -> dict[str, Any]:
        """Return the HTTP client's arguments. A proxy is useless for a server on this machine, and often breaks it."""
        is_local = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        return {"base_url": self.url + API, "headers": {"User-Agent": USER_AGENT}, "trust_env": not is_local}

    def request(self, call: Call[Any]) -> dict[str, Any]:
        """Return the arguments of `httpx.Client.request`.

        Raises NotLoggedIn when a token is needed and there is none.
        """
        if not call.is_public and not self.token:
            raise NotLoggedIn(f"no token for {self.url}: run `muster login {self.url}`, or set MUSTER_TOKEN")
        bearer = {} if call.is_public else {"Authorization": f"Bearer {self.token}"}
        content = self.pieces(call) if call.on_sent else call.content
        body = {"content": content} if content is not None else {"json": call.json}
        length = {} if call.on_sent is None else {"Content-Length": str(len(call.content or b""))}
        return {
            "method": call.method,
            "url": call.path,
            "params": dict(call.params),
            "headers": {"Accept": "*/*" if call.is_raw else "application/json", **bearer, **length, **call.headers},
            "timeout": httpx.Timeout(self.timeout_seconds + call.wait_seconds, connect=CONNECT_SECONDS),
            **(body if call.method in WITH_BODY else {}),
        }

    def pieces(self, call: Call[Any]) -> Iterator[bytes]:
        """Yield the content, reporting how much was taken. Its length must be in the headers: see `request`."""
        content, report = call.content or b"", call.on_sent or (lambda share: None)
        for at in range(0, len(content), PIECE_BYTES):
            yield content[at : at + PIECE_BYTES]
            report(min(1.0, (at + PIECE_BYTES) / len(content)))

    def pause(self, call: Call[Any], *, reply: Reply, tried: int, rested: float = 0.0) -> float | None:
        """Return the seconds until the next attempt, None if this reply is final; `rested` seconds have been spent."""
        is_patient = rested < call.patience_seconds
        if not call.is_repeatable or (tried >= call.tries and not is_patient):
            return None
        if isinstance(reply, httpx.RequestError):
            return self._back_off(tried)
        if reply.status_code not in PASSING and not (is_patient and reply.status_code >= 500):
            return None
        asked = _retry_after(reply.headers)
        if asked is None:
            return self._back_off(tried)
        return asked if asked <= LONGEST_RETRY_AFTER_SECONDS else None

    def retry(self, call: Call[Any], *, reply: Reply, tried: int, pause_seconds: float) -> Retry:
        reason = f"no answer from {self.url}"
        if isinstance(reply, httpx.Response):
            reason = f"{self.url} answered {reply.status_code}"
        return Retry(reason, tried, pause_seconds, call.patience_seconds > 0)

    def received(self, reply: Reply) -> httpx.Response:
        if isinstance(reply, httpx.RequestError):
            raise self._lost(reply) from reply
        return reply

    def cut_off(self, error: httpx.RequestError) -> CutOff:
        return CutOff(f"lost the connection to {self.url} in the middle of a response: try again")

    def read(self, call: Call[T], *, reply: Reply) -> T:
        reply = self.received(reply)
        if not reply.is_success and reply.status_code not in call.accepted:
            raise self._refused(call, reply=reply)
        try:
            return call.parse(_content(call, reply=reply))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnexpectedAnswer(self._not_muster(f"{reply.status_code} with unexpected content")) from error

    def _back_off(self, tried: int) -> float:
        # Half fixed, half random: many clients must not retry at the same moment.
        longest: float = min(FIRST_PAUSE_SECONDS * 2 ** min(tried - 1, 9), LONGEST_PAUSE_SECONDS)
        return longest * (0.5 + 0.5 * self.chance())

    def _refused(self, call: Call[Any], *, reply: httpx.Response) -> MusterError:
        problem = _problem(reply)
        status = reply.status_code
        if reply.is_redirect:
            to = reply.headers.get("location", "elsewhere")
            return UnexpectedAnswer(f"{self.url} redirects to {to}: log in with that address")
        if problem is None and status in (404, 405):
            return UnexpectedAnswer(self._not_muster(f"{status} for {API}{call.path}"))
        if status == 404 and call.missing:
            return from_problem(status, problem={**(problem or {}), "detail": call.missing})
        return from_problem(status, problem=problem or {}, hint=self._hint(call, status=status))

    def _hint(self, call: Call[Any], *, status: int) -> str:
        if status == 401 and not call.is_public:
            return f"run `muster login {self.url}` (or check MUSTER_TOKEN)"
        if status == 429:
            return "wait a minute, then try again"
        return f"try again; if it keeps failing, tell the administrator of {self.url}" if status >= 500 else ""

    def _not_muster(self, what: str) -> str:
        return f"{self.url} answered {what}: is it a Muster server? `muster login URL` logs in to another one"

    def _lost(self, error: httpx.RequestError) -> MusterError:
        way_out = "check the address and the network, or `muster login URL` for another server"
        if isinstance(error, httpx.ConnectTimeout):
            return TimedOut(f"no connection to {self.url} within {CONNECT_SECONDS:g} s: {way_out}")
        if isinstance(error, httpx.TimeoutException):
            seconds = f"{self.timeout_seconds:g} s"
            return TimedOut(f"{self.url} did not answer within {seconds}: it may be busy, try again in a minute")
        text = str(error) or type(error).__name__
        for sign, sentence in SENTENCES.items():
            if sign in text.lower():
                return Unreachable(sentence.format(url=self.url, host=urlsplit(self.url).hostname, way_out=way_out))
        return Unreachable(f"lost the connection to {self.url} ({' '.join(text.split())}): {way_out}")


USER_AGENT = f"muster-client/{VERSION} python/{platform.python_version()}"

# httpx distinguishes these only by their text.
SENTENCES: Mapping[str, str] = {
    "refused": "nothing answers at {url} (connection refused): start the server, or {way_out}",
    "all connection attempts failed": "nothing answers at {url} (connection refused): start the server, or {way_out}",
    "name or service not known": "cannot resolve the host name {host}: {way_out}",
    "nodename nor servname": "cannot resolve the host name {host}: {way_out}",
    "getaddrinfo failed": "cannot resolve the host name {host}: {way_out}",
    "temporary failure in name resolution": "cannot resolve the host name {host}: {way_out}",
    "wrong_version_number": "{url} does not use TLS: try http:// instead of https://, or ask its administrator",
    "certificate": "the certificate of {url} is not trusted: set SSL_CERT_FILE to the certificate of your authority",
}


def _content(call: Call[Any], *, reply: httpx.Response) -> Any:
    if call.is_raw:
        return reply.content
    return reply.json() if reply.content else None


def _problem(reply: httpx.Response) -> dict[str, Any] | None:
    try:
        body = reply.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, which is a number or a date (RFC 9110, 10.2.3)."""
    text = headers.get("retry-after", "")
    try:
        return max(0.0, float(text))
    except ValueError:
        return seconds_until(text, now=datetime.now(timezone.utc))


def seconds_until(text: str, *, now: datetime) -> float | None:
    """Return the seconds until an HTTP date, 0 for one in the past; None if `text` is no date."""
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - now).total_seconds())
