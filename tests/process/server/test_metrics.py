"""Each process serves its metrics at a port of its own, and goes on if it cannot."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

from embedded.ports import free_port
from tests.process.server.conftest import in_django, until


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


def test_every_process_serves_its_own(server, database):
    database.create_with_tables()
    ports = {word: free_port() for word in ("web", "tasks", "watcher")}
    web = ("web", "--host", "127.0.0.1", "--port", str(server.port))
    with (
        server.start(*web, MUSTER_METRICS=f"127.0.0.1:{ports['web']}"),
        server.start("tasks", MUSTER_METRICS=f"127.0.0.1:{ports['tasks']}"),
        server.start("watcher", MUSTER_METRICS=f"127.0.0.1:{ports['watcher']}"),
    ):
        found = {word: until(lambda port=port: scraped(port)) for word, port in ports.items()}
        assert all(one["process_resident_memory_bytes", frozenset()] > 1e7 for one in found.values())
        assert [("muster_database_up", frozenset()) in one for one in found.values()] == [True, False, False]
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
        assert "muster_http_request_seconds" not in httpx.get(f"http://127.0.0.1:{server.port}/metrics").text


def _answered(port: int, path: str) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=30).status_code
    except httpx.TransportError:
        return 0


def test_a_port_in_use_is_told_and_the_process_goes_on(server, database):
    database.create_with_tables()
    taken = server.port
    with server.start("web", "--host", "127.0.0.1", "--port", str(taken)):
        until(lambda: _answered(taken, "/healthz") == 200)
        with server.start("watcher", MUSTER_METRICS=f"127.0.0.1:{taken}") as watcher:
            watcher.until_said(f"no metrics at 127.0.0.1:{taken} (MUSTER_METRICS)")
            watcher.until_said("watcher: this process leads")


def test_a_scrape_does_not_wait_for_a_database_that_is_away(server):
    """Prometheus gives up after ten seconds; a connection of the pool is waited for ten minutes here, longer than the test."""
    told = """
        from controlplane.telemetry.metrics import Rows
        for family in Rows().collect():
            for one in family.samples:
                print(one.name, one.value)
    """
    away = f"postgres://nobody@127.0.0.1:{free_port()}/none"
    assert in_django(server, told, DATABASE_URL=away, MUSTER_DB_SECONDS="600").split() == ["muster_database_up", "0.0"]


def test_a_wrong_address_is_one_line(server):
    code, said = server.run("web", MUSTER_METRICS="9090")
    assert code == 1 and "MUSTER_METRICS is 9090; it must be ADDRESS:PORT" in said
