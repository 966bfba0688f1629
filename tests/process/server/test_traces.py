"""One trace leads from a request through its tasks to the cluster."""

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.support.collector import Collector, Span, collect
from tests.support.patience import until

pytestmark = pytest.mark.ci

REQUEST = "request-of-the-test"
PARAMETER = re.compile(r"%(\(\w+\))?s")  # as a statement has it, without the value
WEB = ("web", "--host", "127.0.0.1", "--port")


@contextmanager
def running(server, collector: Collector, *words: str, **env: str) -> Iterator[object]:
    traced = {"MUSTER_TRACES": collector.url, "MUSTER_TRACES_SAMPLE": "1", **env}
    with server.start(*words, **traced) as process:
        if words[0] == "web":
            until(lambda: answered(server.port) == 200)
        yield process


def answered(port: int, path: str = "/healthz", **headers: str) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60, headers=headers).status_code
    except httpx.TransportError:
        return 0


def named(spans: list[Span], name: str) -> list[Span]:
    return [one for one in spans if one.name == name]


def test_a_submission_its_tasks_and_the_cluster_are_one_trace(server, token, database):
    local = {"MUSTER_LOCAL_JOBS": "1", "MUSTER_PUBLIC_URL": f"http://127.0.0.1:{server.port}"}
    with (
        collect() as collector,
        running(server, collector, *WEB, str(server.port), **local),
        running(server, collector, "tasks", **local),
    ):
        # The sweeper may be quicker than the doorbell, above all while `tasks` starts; its visits are their own traces.
        job, spans = until(lambda: launched_by_its_request(server, token, collector))
        (call,) = named(spans, "cluster.apply")
        assert [one.name for one in above(spans, call)] == [
            "visit", "task jobs.reconcile", "scheduler.queue", "task jobs.schedule", "services.submit",
            "POST api-job-list",
        ]  # fmt: skip
        visit, request = above(spans, call)[0], above(spans, call)[-1]
        assert (visit.facts["muster.job"], visit.facts["muster.attempt"], visit.facts["muster.cluster"]) == (
            job, 1, "local",
        )  # fmt: skip
        assert (request.process, call.process) == ("web", "tasks")
        assert {one.facts["muster.request_id"] for one in spans if "muster.request_id" in one.facts} == {REQUEST}
        inserts = named(spans, "INSERT")
        assert inserts and all(PARAMETER.search(one.facts["db.query.text"]) for one in inserts)
        for (one,) in database.run("SELECT id FROM jobs_job WHERE finished_at IS NULL"):  # it leaves no process behind
            asked = httpx.post(
                f"http://127.0.0.1:{server.port}/api/v1/jobs/{one}/cancel", headers={"Authorization": f"Bearer {token}"}
            )
            assert asked.status_code in (200, 202, 409), asked.text
        until(lambda: database.run("SELECT count(*) FROM jobs_job WHERE finished_at IS NULL") == [(0,)])
        for secret in (token, "hunter2", "secret-name", "a-password-of-ann", "token="):
            assert not [one for one in collector.spans if secret in str(one)], secret
        assert {one.events for one in collector.spans} == {0}


def launched_by_its_request(server, token: str, collector: Collector) -> tuple[int, list[Span]] | None:
    """Submit a job; return its id and the trace of the request, if that is what launched it."""
    wanted = {
        "name": f"secret-name-{secrets.token_hex(4)}", "queue": "default", "framework": "plain", "command": ["true"],
        "env": {"WANDB_API_KEY": "hunter2hunter2"},
    }  # fmt: skip
    url = f"http://127.0.0.1:{server.port}/api/v1/jobs"
    headers = {"Authorization": f"Bearer {token}", "X-Request-ID": REQUEST}
    misplaced = httpx.get(f"{url}?token={token}", timeout=60, headers=headers)
    assert misplaced.status_code == 400 and token not in misplaced.text
    sent = httpx.post(url, json=wanted, timeout=60, headers=headers)
    assert sent.status_code == 201, sent.text
    job = sent.json()["id"]
    launch = collector.until(lambda spans: launch_of(spans, job))
    spans = collector.until(lambda spans: ended(spans, launch.trace))
    return (job, spans) if named(spans, "POST api-job-list") else None


def launch_of(spans: list[Span], job: int) -> Span | None:
    visits = {one.id for one in named(spans, "visit") if one.facts.get("muster.job") == job}
    return next((one for one in named(spans, "cluster.apply") if one.parent in visits), None)


def ended(spans: list[Span], trace: str) -> list[Span]:
    """The trace's spans, once every parent is there."""
    found = [one for one in spans if one.trace == trace]
    ids = {one.id for one in found}
    return found if all(not one.parent or one.parent in ids for one in found) else []


def above(spans: list[Span], one: Span) -> list[Span]:
    of = {span.id: span for span in spans}
    found = []
    while one.parent:
        one = of[one.parent]
        found.append(one)
    return found


def test_a_callers_trace_goes_on_whatever_the_share_and_is_in_the_log_and_sent_at_the_end(server, database, tmp_path):
    """With credentials for the collector from a file."""
    database.create_with_tables()
    (tmp_path / "headers").write_text("Authorization=Bearer%20of-the-collector,x-tenant=lab\n")
    env = {
        "OTEL_EXPORTER_OTLP_HEADERS_FILE": str(tmp_path / "headers"), "MUSTER_TRACES_SAMPLE": "0", "MUSTER_LOG_FORMAT": "json"
    }  # fmt: skip
    yes, no = "0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"
    with collect() as collector, running(server, collector, *WEB, str(server.port), **env) as web:
        assert answered(server.port, "/login", traceparent=f"00-{no}-b7ad6b7169203331-00") == 200
        assert answered(server.port, "/login") == 200
        assert answered(server.port, "/login", traceparent="00-no-trace-01") == 200
        headers = {"X-Request-ID": REQUEST, "traceparent": f"00-{yes}-b7ad6b7169203331-01"}
        sent = httpx.post(f"http://127.0.0.1:{server.port}/login?token=hunter2", headers=headers)
        assert sent.status_code == 403  # without the form's token
        web.end()
        assert {one.trace for one in collector.spans} == {yes}
        (span,) = [one for one in collector.spans if one.facts.get("muster.request_id") == REQUEST]
        assert span.name == "POST login" and span.facts["http.response.status_code"] == 403 and not span.is_error
        assert "b7ad6b7169203331" in {one.parent for one in collector.spans}
        lines = [json.loads(line) for line in web.said.splitlines() if "Forbidden" in line]
        assert [(one["request"], one["trace_id"]) for one in lines] == [(REQUEST, yes)]
        assert not [one for one in collector.spans if "hunter2" in str(one)]
        assert {one.service for one in collector.spans} == {"muster"}
        told = {name.lower(): value for name, value in collector.headers[0].items()}
        assert (told["authorization"], told["x-tenant"]) == ("Bearer of-the-collector", "lab")
