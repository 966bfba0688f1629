"""Traces: spans of requests, tasks, visits, calls and statements for an OpenTelemetry collector (docs/traces.md).

Without MUSTER_TRACES nothing of OpenTelemetry is imported, and a span costs one look at a variable. A span says only
what is in ATTRIBUTES: no message of an error, no value of a statement, no query string, no header.
"""

import atexit
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import ParamSpec, Protocol, TypeVar

from django.conf import settings

P = ParamSpec("P")
T = TypeVar("T")

HEADER = "traceparent"  # W3C Trace Context: of requests, and of messages to tasks
LINK = "muster_traceparent"  # of messages to tasks that begin a trace of their own

# What a span may say, by OpenTelemetry's names where it has one (semantic conventions 1.x).
ATTRIBUTES = MappingProxyType(
    {
        "request": "muster.request_id",
        "job": "muster.job",
        "attempt": "muster.attempt",
        "cluster": "muster.cluster",
        "role": "muster.role",
        "replica": "muster.replica",
        "method": "http.request.method",
        "route": "http.route",
        "status": "http.response.status_code",
        "database": "db.system.name",
        "statement": "db.query.text",
        "error": "error.type",
    }
)
Facts = Mapping[str, str | int]


class Kind(Enum):
    """Which side of a call a span is; the values are OpenTelemetry's names."""

    INSIDE = "INTERNAL"
    SERVER = "SERVER"
    CLIENT = "CLIENT"
    TASK = "CONSUMER"


class Tracer(Protocol):
    """What makes spans (trace_export.py)."""

    def span(self, name: str, *, kind: Kind, cause: str, link: str, facts: Facts) -> AbstractContextManager[object]: ...
    def note(self, facts: Facts, *, name: str) -> None: ...
    def is_recording(self) -> bool: ...
    def traceparent(self) -> str: ...
    def trace_id(self) -> str: ...
    def stop(self) -> None: ...


_tracer: Tracer | None = None
_NOTHING = nullcontext()


def start(process: str) -> None:
    """Send spans from here on, if MUSTER_TRACES names a collector. `process`: web, tasks or watcher."""
    if settings.MUSTER_TRACES and _tracer is None:
        from . import trace_export

        use(
            trace_export.start(
                process=process,
                collector=settings.MUSTER_TRACES,
                share=settings.MUSTER_TRACES_SAMPLE,
                headers=settings.MUSTER_TRACES_HEADERS,
            )
        )
        atexit.register(stop)


def use(tracer: Tracer | None) -> None:
    """Have `tracer` make the spans of this process; None: there are none."""
    global _tracer
    _tracer = tracer


def stop() -> None:
    """Send what waits, within trace_export.STOP_SECONDS. Blocks; spans that end later are lost."""
    if _tracer is not None:
        _tracer.stop()


def span(
    name: str, *, kind: Kind = Kind.INSIDE, cause: str = "", link: str = "", **facts: str | int
) -> AbstractContextManager[object]:
    """Return a span to be entered: below the one that runs, or below `cause`, or else the first of a new trace.

    `cause` and `link` are values of HEADER; malformed ones count as none.
    """
    return _tracer.span(name, kind=kind, cause=cause, link=link, facts=facts) if _tracer else _NOTHING


def part(name: str, *, kind: Kind = Kind.INSIDE, **facts: str | int) -> AbstractContextManager[object]:
    """Like `span`, but only below another one: what nobody waits for begins no trace."""
    if _tracer is None or not _tracer.is_recording():
        return _NOTHING
    return _tracer.span(name, kind=kind, cause="", link="", facts=facts)


def note(*, name: str = "", **facts: str | int) -> None:
    """Add facts to the span that runs, or rename it; `error` also marks it as failed."""
    if _tracer:
        _tracer.note(facts, name=name)


def carried(act: Callable[P, T]) -> Callable[P, T]:
    """Return `act` so that in another thread, too, its spans are below the one that runs here."""
    return partial(copy_context().run, act) if _tracer and _tracer.is_recording() else act


def headers(*, is_later: bool) -> dict[str, str]:
    """Return headers for a message that starts a task; empty outside a trace.

    A task that is asked to come back after a pause begins a trace of its own, linked to this one: a job that is visited
    for hours must not be one trace.
    """
    found = _tracer.traceparent() if _tracer else ""
    return {LINK if is_later else HEADER: found} if found else {}


def trace_id() -> str:
    """Return the id of the trace that is recorded here, as 32 hexadecimal digits; empty if none is."""
    return _tracer.trace_id() if _tracer else ""
