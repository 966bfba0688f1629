"""Spans of batches and statements, and the thread that sends them: bounded, quiet, and alive after a fork."""

import json
import logging
import os
import struct
import threading

import httpx
import pytest
from django.db import IntegrityError, connection, transaction
from django.db.backends.signals import connection_created

from accounts.models import Team
from common.signals import doorbell
from common.telemetry import trace_export, traces
from controlplane.celery import app
from embedded.ports import free_port
from jobs.ingest import agent_tokens
from tests.support.builders import identity, log_item
from tests.support.collector import collect
from tests.support.patience import PATIENCE_SECONDS, until
from tests.support.site import serve

# isort: off
# Importable once trace_export.py was imported.
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
# isort: on


class Kept(SpanExporter):
    """Takes spans, or not; `gate` holds up each call while it is clear."""

    def __init__(self):
        self.spans, self.calls, self.takes = [], 0, True
        self.gate = threading.Event()
        self.gate.set()

    def export(self, spans):
        self.calls += 1
        self.gate.wait(PATIENCE_SECONDS)
        if self.takes:
            self.spans += spans
        return SpanExportResult.SUCCESS if self.takes else SpanExportResult.FAILURE

    def named(self, name: str) -> list:
        return [one for one in self.spans if one.name == name]


@pytest.fixture
def kept(monkeypatch):
    """This process makes spans, which come here; `stop_tracing` waits for them."""
    monkeypatch.setattr(trace_export, "GATHER_SECONDS", 0.01)
    kept = Kept()
    traces.use(trace_export.SdkTracer(trace_export.SpanSender(kept, collector="http://c", reason=lambda: "it said no")))
    trace_export.watch_statements(connection=connection)
    yield kept
    kept.gate.set()
    traces.stop()
    traces.use(None)
    connection.execute_wrappers.clear()


def test_a_batch_of_an_agent_is_a_trace_of_its_own(transactional_db, lab):
    job = lab.running()
    who = identity(job)
    line = log_item(0, 0, [(1.0, "a line of the job")])
    header = json.dumps({"version": 1, "seq": 1, "sent_at": 1.0, "items": [dict(line.fields)]}).encode()
    with collect() as collector, serve(MUSTER_TRACES=collector.url, MUSTER_TRACES_SAMPLE="1") as site:
        answer = httpx.post(
            f"{site.url}/agent/v1/batches",
            content=struct.pack(">I", len(header)) + header + line.blob,
            headers={"Authorization": f"Bearer {agent_tokens.issue(who)}"},
            timeout=PATIENCE_SECONDS,
        )
        assert answer.status_code == 200, answer.text
        (batch,) = collector.until(lambda spans: [one for one in spans if one.name == "batch"])
        assert batch.facts == {
            "muster.job": job.pk, "muster.attempt": who.attempt, "muster.role": who.role, "muster.replica": who.index,
            "http.response.status_code": 200,
        }  # fmt: skip
        below = collector.until(lambda spans: [one for one in spans if one.parent == batch.id])
        assert {"ingest.apply", "SELECT"} <= {one.name for one in below}
        assert not [one for one in collector.spans if "a line of the job" in str(one)]


def test_a_statement_is_a_span_with_its_text_and_none_of_its_values(db, kept):
    with traces.span("outside", job=7):
        Team.objects.create(name="very-secret-name")
        with pytest.raises(IntegrityError), transaction.atomic():
            Team.objects.create(name="very-secret-name")
    until(lambda: kept.named("outside"))
    done, failed = kept.named("INSERT")
    assert done.attributes["db.query.text"].startswith('INSERT INTO "accounts_team"')
    assert (done.status.is_ok, failed.status.is_ok) == (True, False)
    assert failed.attributes["error.type"] == "IntegrityError" and not failed.events
    assert not [one for one in kept.spans if "very-secret-name" in one.to_json()]


def test_a_statement_that_belongs_to_no_trace_begins_none(db, kept):
    assert not Team.objects.exists()
    with traces.span("last"):
        pass
    until(lambda: kept.named("last"))
    assert [one.name for one in kept.spans] == ["last"]


def test_a_task_that_comes_back_after_a_pause_begins_a_trace_that_is_linked(db, kept):
    ran = []

    @app.task(name="test.traced")
    def task() -> None:
        ran.append(traces.trace_id())

    with traces.span("visit"):
        first = traces.trace_id()
        now, later = traces.headers(is_later=False), traces.headers(is_later=True)
    task.apply(headers=now)
    task.apply(headers=later)
    assert ran[0] == first and ran[1] != first
    until(lambda: len(kept.named("task test.traced")) == 2)
    (link,) = kept.named("task test.traced")[1].links
    assert f"{link.context.trace_id:032x}" == first


def test_a_wake_up_carries_the_trace_of_its_caller_to_the_bells_thread(db, kept, monkeypatch):
    sent, done = [], threading.Event()
    monkeypatch.setattr(app, "send_task", lambda task, **how: (sent.append(how["headers"]), done.set()))
    with traces.span("request"):
        trace = traces.trace_id()
        doorbell.poke_now("test.carried")
    assert done.wait(PATIENCE_SECONDS)
    assert sent[0][traces.HEADER].split("-")[1] == trace


def test_a_span_never_waits_for_a_hanging_collector(kept):
    kept.gate.clear()
    for _ in range(2 * trace_export.MOST_WAITING):
        with traces.span("one of many"):
            pass
    kept.gate.set()
    until(lambda: len(kept.spans) >= trace_export.MOST_WAITING)
    assert len(kept.spans) <= trace_export.MOST_WAITING + trace_export.BATCH


def test_failures_are_one_line_a_minute_and_sending_goes_on_afterwards(kept, monkeypatch, caplog):
    monkeypatch.setattr(trace_export, "REST_SECONDS", 0.0)
    kept.takes = False
    with caplog.at_level(logging.WARNING):
        for number in range(1, 6):
            with traces.span("lost"):
                pass
            until(lambda number=number: kept.calls >= number)
        kept.takes = True
        with traces.span("sent"):
            pass
        until(lambda: kept.named("sent"))
    lines = [one for one in caplog.messages if "not sent" in one]
    assert lines == ["1 spans not sent to http://c (MUSTER_TRACES): it said no"]


def test_a_collector_that_is_away_is_one_line_with_the_reason(monkeypatch, caplog):
    """The real exporter would write several for each attempt."""
    monkeypatch.setattr(trace_export, "GATHER_SECONDS", 0.01)
    away = f"http://127.0.0.1:{free_port()}"
    traces.use(trace_export.start(process="web", collector=away, share=1.0, headers=""))
    try:
        with traces.span("lost"):
            pass
        until(lambda: caplog.records)
        for _ in range(20):
            with traces.span("lost too"):
                pass
        traces.stop()
    finally:
        traces.use(None)
        connection_created.disconnect(trace_export.watch_statements)
    (line,) = caplog.messages
    assert line.startswith(f"1 spans not sent to {away} (MUSTER_TRACES): ") and "Connection refused" in line
    assert not caplog.records[0].exc_info


def test_the_end_waits_for_a_hanging_collector_no_longer_than_it_says(kept, monkeypatch):
    monkeypatch.setattr(trace_export, "STOP_SECONDS", 0.01)
    kept.gate.clear()
    with traces.span("held"):
        pass
    until(lambda: kept.calls)
    traces.stop()
    assert not kept.spans, "it ended while the collector still hung"


def test_a_forked_child_sends_its_own_spans(kept):
    with traces.span("parent"):
        pass
    until(lambda: kept.named("parent"))
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        with traces.span("child"):
            pass
        traces.stop()
        os.write(write, b"1" if kept.named("child") else b"0")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0 and os.read(read, 1) == b"1"


def test_without_a_tracer_a_span_is_one_shared_nothing():
    assert traces.span("one") is traces.part("another") is traces.span("third", job=1)
    assert (traces.headers(is_later=False), traces.trace_id()) == ({}, "")
