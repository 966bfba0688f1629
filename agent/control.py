"""HTTP to the control plane: one kept connection, the address read again after every failure."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import zlib
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, NamedTuple
from urllib.parse import urlsplit

from .state import Spec, StateFolder
from .wire.pack import LostFile

TIMEOUT_SECONDS = 15
CLOSED = (401, 403)  # the attempt is over for this agent
REFUSED = (400, 413)  # these bytes will never be accepted
LONGEST_WAIT_SECONDS = 60.0  # that a control plane may request
GONE = (404, 410, 413)  # another request would be answered the same
MAX_LIST_BYTES = 256 << 20
BATCHES = "/agent/v1/batches"
WORKSPACE = "/agent/v1/workspace"


class Unreachable(Exception):
    """No answer, or an unusable one: try again later, and not before `wait_seconds`."""

    wait_seconds = 0.0


class Closed(Exception):
    """401 or 403: the attempt is over for this agent."""


class Refused(Exception):
    """400 or 413: the control plane will never accept these bytes.

    `kinds`: item kinds it named as the cause, if any.
    """

    def __init__(self, text: str, *, kinds: set[str]) -> None:
        super().__init__(text)
        self.kinds = kinds


class Listed(NamedTuple):
    text: str
    team: str  # the team whose cache the files belong in


@dataclass(frozen=True)
class Reply:
    ack: int
    commands: list[dict[str, Any]] = field(default_factory=list)


class ControlPlane:
    """Not thread-safe. Every call raises Unreachable or Closed; `post` also Refused, those for code LostFile."""

    def __init__(self, folder: StateFolder, *, spec: Spec) -> None:
        self._folder = folder
        self._control = spec.control
        self._connection: http.client.HTTPConnection | None = None
        self._prefix = ""
        self.was_answered = False  # by any server, whatever the answer was

    def post(self, body: bytes) -> Reply:
        """Send one batch; if a kept connection was closed meanwhile, once more on a new one, which seq makes safe."""
        headers = {"Content-Type": "application/x-muster-batch"}
        was_kept = self._connection is not None
        try:
            answer = self._ask("POST", BATCHES, body=body, headers=headers)
        except Unreachable:
            if not was_kept:
                raise
            answer = self._ask("POST", BATCHES, body=body, headers=headers)
        wait = answer.getheader("Retry-After") or ""
        return _reply(self._content(answer), status=answer.status, wait=wait)

    def fetch_list(self) -> Listed | None:
        """Return the list of the job's files; None when it has no code. Raises LostFile when it is gone for good."""
        answer = self._ask("GET", WORKSPACE, body=None, headers={})
        content = self._content(answer)
        if answer.status == 204:
            return None
        _check(answer.status, content)
        text, digest = _unpacked(content), answer.getheader("X-Muster-Digest", "")
        if hashlib.sha256(text.encode()).hexdigest() != digest:
            raise Unreachable("the list of files arrived damaged")
        return Listed(text, answer.getheader("X-Muster-Team", ""))

    @contextlib.contextmanager
    def fetch_files(self, digests: list[str]) -> Iterator[Callable[[int], bytes]]:
        """Yield a function that reads the pack of these files, piece by piece."""
        headers = {"Content-Type": "application/octet-stream"}
        body = b"".join(bytes.fromhex(digest) for digest in digests)
        answer = self._ask("POST", WORKSPACE, body=body, headers=headers)
        try:
            if answer.status != 200:
                _check(answer.status, self._content(answer))
            yield lambda length: _some(answer, length)
        finally:
            self.close()  # unread bytes must not be taken for the next answer

    def address(self) -> str:
        """Return the address in use, for messages."""
        try:
            return self._url() or "an empty address"
        except (OSError, ValueError) as error:
            return f"an address that cannot be read ({error})"

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _ask(self, verb: str, path: str, *, body: bytes | None, headers: dict[str, str]) -> http.client.HTTPResponse:
        headers = dict(headers, Authorization=f"Bearer {self._folder.token()}")
        try:
            connection = self._open()
            connection.request(verb, self._prefix + path, body=body, headers=headers)
            answer = connection.getresponse()
            self.was_answered = True
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(f"{type(error).__name__}: {error}") from error
        if answer.status in CLOSED:
            self.close()
            raise Closed(f"{path} answered {answer.status}")
        return answer

    def _open(self) -> http.client.HTTPConnection:
        if self._connection is None:
            url = urlsplit(self._url())
            kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
            self._prefix = url.path.rstrip("/")
            self._connection = kind(url.hostname or "", url.port, timeout=TIMEOUT_SECONDS)
        return self._connection

    def _url(self) -> str:
        """Return the address; raises OSError or ValueError if its file is unreadable: the control plane is not up."""
        if self._control.get("url"):
            return self._control["url"]
        with open(self._control.get("file", ""), encoding="utf-8") as file:
            return str(json.load(file).get("url", ""))

    def _content(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            return answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(str(error)) from error


def _some(answer: http.client.HTTPResponse, length: int) -> bytes:
    try:
        return answer.read(length)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{type(error).__name__}: {error}") from error


def _check(status: int, content: bytes) -> None:
    """Raise LostFile, with the server's own message, for what will not change, and Unreachable for other failures."""
    if status in GONE:
        raise LostFile(_title(content) or f"{WORKSPACE} answered {status}")
    if status != 200:
        raise Unreachable(f"{WORKSPACE} answered {status}")


def _title(content: bytes) -> str:
    try:
        return str(json.loads(content)["title"])[:500]
    except (ValueError, KeyError, TypeError):
        return ""


def _unpacked(content: bytes) -> str:
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(content, MAX_LIST_BYTES)
        if not inflater.eof:
            raise LostFile(f"the list of files has more than {MAX_LIST_BYTES} bytes")
        return text.decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise Unreachable(f"the list of files arrived damaged: {error}") from error


def _reply(content: bytes, *, status: int, wait: str) -> Reply:
    try:
        answer = json.loads(content)
        if status in (200, 409):  # 409: it wants another batch first, and names it in `ack`
            return Reply(int(answer["ack"]), list(answer.get("commands") or []))
    except (ValueError, KeyError, TypeError, AttributeError):
        answer = None
    text = f"{BATCHES} answered {status}: {content[:200]!r}"
    if status in REFUSED:
        raise Refused(text, kinds=_blamed(answer, status=status))
    error = Unreachable(text)
    error.wait_seconds = min(float(wait), LONGEST_WAIT_SECONDS) if wait.isdigit() else 0.0
    raise error


def _blamed(answer: Any, *, status: int) -> set[str]:
    """Return kinds of items: the control plane names fields, as in `metrics.points`.

    Too many bytes are due to log text.
    """
    if status == 413:
        return {"log"}
    errors = answer.get("errors") if isinstance(answer, dict) else None
    fields = [one.get("field") for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []
    return {str(field).partition(".")[0] for field in fields if field}
