"""An id for each request: in its answer's header, and in every line of the log that it causes, tasks included.

A caller may bring its own (`X-Request-ID`), so that one id leads through a proxy's log and ours.
"""

import logging
import re
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from django.http import HttpRequest, HttpResponse

from .middleware import Middleware

HEADER = "X-Request-ID"
_WELL_FORMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,63}")
current_id: ContextVar[str] = ContextVar("request id", default="")  # of what runs now; empty if no request caused it


def current() -> str:
    """Return the id of the request that caused what runs now; empty if none did."""
    return current_id.get()


@contextmanager
def caused_by(request_id: str) -> Iterator[None]:
    before = current_id.set(request_id)
    try:
        yield
    finally:
        current_id.reset(before)


class NoteRequestId(Middleware):
    """Give the request its id while it is answered; one that is malformed is replaced."""

    def around(self, request: HttpRequest) -> AbstractContextManager[None]:
        brought = request.headers.get(HEADER, "")
        return caused_by(brought if _WELL_FORMED.fullmatch(brought) else secrets.token_hex(8))

    def after(self, response: HttpResponse) -> HttpResponse:
        response[HEADER] = current()
        return response


class WithRequestId(logging.Filter):
    """Add `request_id` to each record, and `caused_by`, the same as a line of text shows it."""

    def filter(self, record: logging.LogRecord) -> bool:
        found = current()
        record.__dict__ |= {"request_id": found, "caused_by": f"[{found}] " if found else ""}
        return True
