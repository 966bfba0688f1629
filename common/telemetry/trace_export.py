"""Makes spans with OpenTelemetry's SDK and sends them to the collector. Imported only where MUSTER_TRACES is set.

OpenTelemetry's own instrumentation is not used: for Django it needs the ASGI one beside it and records query strings,
and for Celery and psycopg it records the text of errors, which holds values of rows (ADR 32).
"""

import logging
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db.backends.signals import connection_created

from .. import HIDDEN
from .traces import ATTRIBUTES, HEADER, Facts, Kind, part

for _name in HIDDEN:
    if sys.modules.get(_name, sys) is None:
        del sys.modules[_name]

from opentelemetry import trace  # noqa: E402
from opentelemetry.context import Context  # noqa: E402
from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: E402
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: E402
from opentelemetry.sdk.resources import Resource  # noqa: E402
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult  # noqa: E402
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: E402
from opentelemetry.trace import Link, SpanKind, StatusCode  # noqa: E402
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: E402
from opentelemetry.util.re import parse_env_headers  # noqa: E402

log = logging.getLogger(__name__)

PATH = "/v1/traces"  # OTLP/HTTP
BATCH = 512  # spans in one message
MOST_WAITING = 4096  # spans; later ones are dropped and counted
GATHER_SECONDS = 1.0
SEND_SECONDS = 1.5  # for one message; a collector that hangs holds up only the thread that sends
REST_SECONDS = 5.0  # after a failure
WARN_EVERY_SECONDS = 60.0
STOP_SECONDS = 2.0
MOST_OF_STATEMENT = 2000  # characters

_contexts = TraceContextTextMapPropagator()


def start(*, process: str, collector: str, share: float, headers: str) -> "SdkTracer":
    """Return a tracer whose spans go to `collector`; `share` of the traces that begin here is recorded."""
    reasons = _Reasons()
    sender = Sender(_exporter(collector, headers), collector=collector, reason=reasons.take)
    provider = TracerProvider(
        resource=Resource.create(
            {
                "service.name": "muster",
                "service.instance.id": f"{process}-{socket.gethostname()}-{os.getpid()}",
                "muster.process": process,
            }
        ),
        sampler=ParentBased(TraceIdRatioBased(share)),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(sender)
    connection_created.connect(watch_statements)
    return SdkTracer(provider.get_tracer("muster"), sender)


def obstacle(collector: str, *, headers: str) -> str:
    """Return why the collector does not take spans, empty if it does: sends it a message without any."""
    reasons = _Reasons()
    return "" if _exporter(collector, headers).export([]) is SpanExportResult.SUCCESS else reasons.take()


def _exporter(collector: str, headers: str) -> OTLPSpanExporter:
    return OTLPSpanExporter(
        endpoint=collector.rstrip("/") + PATH,
        headers=parse_env_headers(headers, liberal=True) if headers else None,
        timeout=SEND_SECONDS,
        compression=Compression.Gzip,
    )


class SdkTracer:
    """A traces.Tracer."""

    def __init__(self, tracer: trace.Tracer, sender: "Sender"):
        self._tracer, self._sender = tracer, sender

    @contextmanager
    def span(self, name: str, *, kind: Kind, cause: str, link: str, facts: Facts) -> Iterator[None]:
        linked = trace.get_current_span(_context(link)).get_span_context() if link else None
        with self._tracer.start_as_current_span(
            name,
            context=_context(cause) if cause else None,
            kind=SpanKind[kind.value],
            attributes=_named(facts),
            links=[Link(linked)] if linked and linked.is_valid else None,
            record_exception=False,  # its message may hold anything
            set_status_on_exception=False,
        ):
            try:
                yield
            except Exception as error:
                self.note({"error": type(error).__name__}, name="")
                raise

    def note(self, facts: Facts, *, name: str) -> None:
        running = trace.get_current_span()
        running.set_attributes(_named(facts))
        if name:
            running.update_name(name)
        if "error" in facts:
            running.set_status(StatusCode.ERROR)

    def is_recording(self) -> bool:
        return trace.get_current_span().is_recording()

    def traceparent(self) -> str:
        carrier: dict[str, str] = {}
        _contexts.inject(carrier)
        return carrier.get(HEADER, "")

    def trace_id(self) -> str:
        found = trace.get_current_span().get_span_context()
        return trace.format_trace_id(found.trace_id) if found.is_valid and found.trace_flags.sampled else ""

    def stop(self) -> None:
        self._sender.shutdown()


def _context(traceparent: str) -> Context:
    return _contexts.extract({HEADER: traceparent})


def _named(facts: Facts) -> dict[str, str | int]:
    return {ATTRIBUTES[name]: value for name, value in facts.items() if value != ""}


class Sender(SpanProcessor):
    """Send spans from a thread of its own, which sleeps while there are none.

    Ending a span never waits: beyond MOST_WAITING it is dropped. OpenTelemetry's own processor wakes up every few
    seconds, may hold up the end of a process for half a minute, and logs each failure.
    """

    def __init__(self, exporter: SpanExporter, *, collector: str, reason: Callable[[], str]):
        self._exporter, self._collector, self._reason = exporter, collector, reason
        self._waiting: deque[ReadableSpan] = deque()
        self._news = threading.Condition()
        self._pid = 0
        self._is_over = False
        self._lost = 0
        self._warned_at = -WARN_EVERY_SECONDS

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._news:
            if self._is_over:
                return
            if self._pid != os.getpid():  # a forked child does not inherit its parent's thread
                self._waiting.clear()
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._run, daemon=True, name="traces")
                self._thread.start()
            if len(self._waiting) >= MOST_WAITING:
                self._lost += 1
                return
            self._waiting.append(span)
            if len(self._waiting) in (1, BATCH):
                self._news.notify()

    def shutdown(self) -> None:
        """Send what waits, for STOP_SECONDS at most."""
        with self._news:
            self._is_over = True
            self._news.notify()
            is_running = self._pid == os.getpid()
        if is_running:
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while batch := self._next():
            if self._send(batch):
                self._tell_of_dropped()
                continue
            reason = self._reason()
            with self._news:
                self._lost += len(batch)
                self._warn(reason)
                if self._news.wait_for(lambda: self._is_over, REST_SECONDS):
                    return

    def _next(self) -> list[ReadableSpan]:
        """Wait for spans and return some; none when it is over."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._is_over)
            self._news.wait_for(lambda: len(self._waiting) >= BATCH or self._is_over, GATHER_SECONDS)
            return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def _send(self, batch: list[ReadableSpan]) -> bool:
        try:
            return self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception:  # outermost handler of this thread; the exporter catches what it expects
            log.exception("spans were not sent")
            return False

    def _tell_of_dropped(self) -> None:
        with self._news:
            if self._lost:
                self._warn(f"more than {MOST_WAITING} ended before they could be sent")

    def _warn(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARN_EVERY_SECONDS:
            self._warned_at = now
            log.warning("%d spans not sent to %s (MUSTER_TRACES): %s", self._lost, self._collector, reason)
            self._lost = 0


class _Reasons(logging.Handler):
    """Keeps what the exporter says for our own line: by itself it writes several for every attempt."""

    def __init__(self) -> None:
        super().__init__()
        self._first: logging.LogRecord | None = None
        exporters = logging.getLogger("opentelemetry.exporter")
        exporters.propagate = False
        exporters.handlers = [self]

    def emit(self, record: logging.LogRecord) -> None:
        self._first = self._first or record  # the later ones only say that it gives up

    def take(self) -> str:
        """Return the first message since the last call."""
        found, self._first = self._first, None
        return found.getMessage() if found else "no reason given"


def watch_statements(connection: Any, **_: Any) -> None:
    """Trace the statements of a connection of Django's; a receiver of `connection_created`."""
    if _traced not in connection.execute_wrappers:
        connection.execute_wrappers.append(_traced)


def _traced(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
    """Run a statement as a part of the trace that runs, if one does: with its text, in which values are %s."""
    words = sql if isinstance(sql, str) else ""
    verb = words.split(None, 1)[0][:20].upper() if words.strip() else "SQL"
    with part(verb, kind=Kind.CLIENT, database="postgresql", statement=words[:MOST_OF_STATEMENT]):
        return execute(sql, params, many, context)
