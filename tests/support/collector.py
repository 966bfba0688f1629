"""An OpenTelemetry collector on loopback: takes OTLP over HTTP, as a real one does, and keeps the spans."""

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.patience import until


@dataclass(frozen=True)
class Span:
    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    facts: dict[str, Any]
    is_error: bool
    events: int
    process: str
    service: str


@dataclass
class Collector:
    url: str = ""
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    answer: Callable[[BaseHTTPRequestHandler], None] | None = None  # in place of 200
    asked: threading.Event = field(default_factory=threading.Event)

    @property
    def spans(self) -> list[Span]:
        return [one for body in list(self.bodies) for one in _spans(body)]

    def until(self, found: Callable[[list[Span]], Any]) -> Any:
        """Return what `found` returns for the spans, once that is true."""
        return until(lambda: found(self.spans), lambda: sorted({(one.process, one.name) for one in self.spans}))


@contextmanager
def collect() -> Iterator[Collector]:
    collector = Collector()

    class Receive(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.asked.set()
            if collector.answer:
                collector.answer(self)
                return
            assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
            collector.headers.append(dict(self.headers))
            collector.bodies.append(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receive)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _spans(body: bytes) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        about = _facts(resource.resource.attributes)
        for scope in resource.scope_spans:
            for one in scope.spans:
                yield Span(
                    one.name, one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex(),
                    tuple(link.trace_id.hex() for link in one.links), _facts(one.attributes), one.status.code == 2,
                    len(one.events), about["muster.process"], about["service.name"],
                )  # fmt: skip


def _facts(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
