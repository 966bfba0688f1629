"""Speaking HTTP to the control plane: one kept connection, the address read anew after every failure."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import IO, Any
from urllib.parse import urlsplit

from .state import Spec, StateFolder

TIMEOUT_SECONDS = 15
PIECE_BYTES = 1 << 18
CLOSED = (401, 403)  # the attempt is over for this agent
REFUSED = (400, 413)  # these bytes will never be taken
LONGEST_WAIT_SECONDS = 60.0  # that a control plane may ask for
BATCHES = "/agent/v1/batches"
WORKSPACE = "/agent/v1/workspace"


class Unreachable(Exception):
    """No answer, or one that does not count: try again later, and not before `wait_seconds`."""

    wait_seconds = 0.0


class Closed(Exception):
    """401 or 403: the attempt is over for this agent."""


class Refused(Exception):
    """400 or 413: the control plane will never take these bytes. `kinds` of items are to blame, where it said so."""

    def __init__(self, text: str, *, kinds: set[str]) -> None:
        super().__init__(text)
        self.kinds = kinds


@dataclass(frozen=True)
class Reply:
    ack: int
    commands: list[dict[str, Any]] = field(default_factory=list)


class ControlPlane:
    """Not for two threads at once. Every call raises Unreachable, Closed or (`post`) Refused, nothing else."""

    def __init__(self, folder: StateFolder, *, spec: Spec) -> None:
        self._folder = folder
        self._control = spec.control
        self._connection: http.client.HTTPConnection | None = None
        self._prefix = ""

    def post(self, body: bytes) -> Reply:
        """Sends one batch. A kept connection may have been closed meanwhile: once more on a new one, seq makes it safe."""
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

    def fetch_workspace(self, into: IO[bytes]) -> bool:
        """Writes the workspace's tar.gz to `into`; False when the job has none."""
        answer = self._ask("GET", WORKSPACE, body=None, headers={})
        try:
            if answer.status == 200:
                _copy(answer, into=into)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(str(error)) from error
        finally:
            self.close()
        if answer.status not in (200, 204):
            raise Unreachable(f"{WORKSPACE} answered {answer.status}")
        return answer.status == 200

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
        """Raises OSError or ValueError when the file that holds it can not be read: the control plane is not up yet."""
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


def _copy(answer: http.client.HTTPResponse, *, into: IO[bytes]) -> None:
    expected, got = answer.length, 0
    while True:
        piece = answer.read(PIECE_BYTES)
        if not piece:
            break
        into.write(piece)
        got += len(piece)
    if expected is not None and got != expected:
        raise http.client.IncompleteRead(b"", expected - got)


def _reply(content: bytes, *, status: int, wait: str) -> Reply:
    try:
        answer = json.loads(content)
        if status in (200, 409):  # 409: it wants another batch first, and says which in `ack`
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
    """Kinds of items: the control plane names fields, as in `metrics.points`. Too many bytes are the text's."""
    if status == 413:
        return {"log"}
    errors = answer.get("errors") if isinstance(answer, dict) else None
    fields = [one.get("field") for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []
    return {str(field).partition(".")[0] for field in fields if field}
