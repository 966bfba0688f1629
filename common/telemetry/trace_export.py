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
from collections.abc import Callable, Iterator, Sequence
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
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult  # noqa: E402
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: E402
from opentelemetry.trace import Link, SpanKind, StatusCode  # noqa: E402
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: E402
from opentelemetry.util.re import parse_env_headers  # noqa: E402

log = logging.getLogger(__name__)

PATH = "/v1/traces"  # OTLP/HTTP
BATCH = 512  # spans in one message
MOST_WAITING = 4096  # spans; older ones are dropped
GATHER_SECONDS = 2.0
SEND_SECONDS = 1.5  # for one message; a collector that hangs holds up only the thread that sends
REST_SECONDS = 5.0  # after a failure
WARN_EVERY_SECONDS = 60.0
STOP_SECONDS = 2.0
MOST_OF_STATEMENT = 2000  # characters

_contexts = TraceContextTextMapPropagator()


def start(*, process: str, collector: str, share: float, headers: str) -> "SdkTracer":
    """Return a tracer whose spans go to `collector`; `share` of the traces that begin here is recorded."""
    connection_created.connect(watch_statements)
    return SdkTracer(
        SpanSender(_exporter(collector, headers), collector=collector, reason=_Reasons().take),
        resource=Resource.create(
            {
                "service.name": "muster",
                "service.instance.id": f"{process}-{socket.gethostname()}-{os.getpid()}",
                "muster.process": process,
            }
        ),
        sampler=ParentBased(TraceIdRatioBased(share)),
    )


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
    """A traces.Tracer. Ending a span never waits: a thread of OpenTelemetry's processor sends them."""

    def __init__(self, sender: "SpanSender", **provider: Any):
        self._sender = sender
        self._provider = TracerProvider(shutdown_on_exit=False, **provider)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                sender,
                max_queue_size=MOST_WAITING,
                max_export_batch_size=BATCH,
                schedule_delay_millis=GATHER_SECONDS * 1000,
            )
        )
        self._tracer = self._provider.get_tracer("muster")

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
        """Send what waits, for STOP_SECONDS at most: the processor itself would wait for half a minute."""
        self._sender.rest_no_more()
        ending = threading.Thread(target=self._provider.shutdown, daemon=True, name="traces end")
        ending.start()
        ending.join(STOP_SECONDS)


def _context(traceparent: str) -> Context:
    return _contexts.extract({HEADER: traceparent})


def _named(facts: Facts) -> dict[str, str | int]:
    return {ATTRIBUTES[name]: value for name, value in facts.items() if value != ""}


class SpanSender(SpanExporter):
    """Send spans to a collector; after a failure rest, and log once a minute how many were lost and why.

    Runs in the thread of OpenTelemetry's batch processor. What ends while it rests and does not fit into that one's
    queue of MOST_WAITING is dropped there.
    """

    def __init__(self, exporter: SpanExporter, *, collector: str, reason: Callable[[], str]):
        self._exporter, self._collector, self._reason = exporter, collector, reason
        self._is_over = threading.Event()
        self._lost = 0
        self._warned_at = -WARN_EVERY_SECONDS

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._lost += len(spans)
            self._warn(self._reason())
            self._is_over.wait(REST_SECONDS)
        return result

    def rest_no_more(self) -> None:
        self._is_over.set()

    def shutdown(self) -> None:
        self._exporter.shutdown()

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
