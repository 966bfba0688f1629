"""Each process serves its metrics at a port of its own, and goes on if it cannot."""

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from embedded.ports import free_port
from tests.support.patience import until

pytestmark = pytest.mark.ci


def scraped(port: int) -> dict[tuple[str, frozenset], float]:
    """Name and labels -> value; empty while nothing answers."""
    try:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
    except httpx.TransportError:
        return {}
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_every_process_serves_its_own_and_goes_on_where_it_cannot(server, database):
    database.create_with_tables()
    ports = {word: free_port() for word in ("web", "tasks")}
    web = ("web", "--host", "127.0.0.1", "--port", str(server.port))
    with (
        server.start(*web, MUSTER_METRICS=f"127.0.0.1:{ports['web']}"),
        server.start("tasks", MUSTER_METRICS=f"127.0.0.1:{ports['tasks']}"),
    ):
        found = {word: until(lambda port=port: scraped(port)) for word, port in ports.items()}
        assert all(one["process_resident_memory_bytes", frozenset()] > 1e7 for one in found.values())
        assert [("muster_database_up", frozenset()) in one for one in found.values()] == [True, False]
        # Prometheus sees no increase of a series whose first value is 1.
        assert all(
            ("muster_doorbell_failures_total", frozenset({("reason", "dropped")})) in one for one in found.values()
        )
        for path, status in (("/login", 200), ("/nowhere", 404)):
            until(lambda path=path, status=status: _answered(server.port, path) == status)
        found = scraped(ports["web"])
        of = {labels: value for (name, labels), value in found.items() if name == "muster_http_request_seconds_count"}
        assert of[frozenset({"method": "GET", "route": "login", "status": "2xx"}.items())] >= 1
        assert of[frozenset({"method": "GET", "route": "none", "status": "4xx"}.items())] >= 1
        with server.start("watcher", MUSTER_METRICS=f"127.0.0.1:{server.port}") as watcher:
            watcher.until_said(f"no metrics at 127.0.0.1:{server.port} (MUSTER_METRICS)")
            watcher.until_said("watcher: this process leads")
        assert "muster_http_request_seconds" not in httpx.get(f"http://127.0.0.1:{server.port}/metrics").text


def _answered(port: int, path: str) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=30).status_code
    except httpx.TransportError:
        return 0
