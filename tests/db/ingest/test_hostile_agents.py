"""Agents that lie, repeat themselves or belong elsewhere get a clear answer, and no batch is partly applied."""

import json
import struct
import time
import zlib
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.analysis import metrics
from jobs.ingest.agent_tokens import issue
from jobs.ingest.handler import answer
from jobs.ingest.translate import MAX_NAMES
from jobs.logs import reader
from jobs.models import JobEvent, LogSegment, MetricChunk, Rank, Replica
from tests.db.ingest.test_agent_door import body
from tests.support.builders import deliver, identity, item, log_item
from tests.unit.ingest.test_batches import items

pytestmark = pytest.mark.django_db
T = float(int(time.time()) - 60)


@pytest.fixture(autouse=True)
def files(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    return tmp_path


@pytest.fixture
def job(lab):
    return lab.running()


def rows() -> tuple[int, int, int]:
    return LogSegment.objects.count(), MetricChunk.objects.count(), JobEvent.objects.filter(kind="note").count()


def test_a_forged_token_is_refused(job):
    good = issue(identity(job))
    named, _, signature = good.rpartition(":")
    other = issue(replace(identity(job), index=1))
    forged = [
        good[:-1] + ("A" if good[-1] != "A" else "B"),
        named,
        "",
        "x" * 5000,
        other.rpartition(":")[0] + ":" + signature,
    ]
    assert [deliver(token, body()).status for token in forged] == [401] * len(forged)


def test_a_token_gives_access_only_to_the_replica_that_it_names(job, lab):
    mine = identity(job)
    strangers = [
        replace(mine, attempt=2), replace(mine, role="head"), replace(mine, index=9), replace(mine, job=job.pk + 1),
        replace(mine, run=f"{job.pk}-ffffff"),
    ]  # fmt: skip
    for one in strangers:
        said = deliver(issue(one), body(log_item(0, 0, [(T, "x")])))
        assert said.status == 403, one
    assert rows() == (0, 0, 0)
    other = body(log_item(0, 0, [(T, "x")]), item("rank", rank=0, local_rank=0, state="failed", exit_code=1, at=T))
    assert deliver(issue(replace(mine, index=1)), other).status == 200
    assert Rank.objects.get(job=job, rank=0).state == "waiting"
    assert [line.text for line in reader.read(job=job, source=reader.LogSource(0)).lines] == []


def test_a_replayed_batch_with_different_bytes_changes_nothing(job, files):
    token = issue(identity(job))
    assert deliver(token, body(log_item(0, 0, [(T, "true")]))).content["ack"] == 1
    before = {path: path.read_bytes() for path in files.rglob("*.z")}
    assert deliver(token, body(log_item(0, 0, [(T, "false")]))).content["ack"] == 1
    assert {path: path.read_bytes() for path in files.rglob("*.z")} == before
    assert [line.text for line in reader.read(job=job).lines] == ["true"]


def test_batches_out_of_order_are_answered_with_the_last_applied_number(job):
    token = issue(identity(job))
    sent = {seq: body(log_item(0, seq - 1, [(T, str(seq))]), seq=seq) for seq in range(1, 6)}
    acks = [deliver(token, sent[seq]).content["ack"] for seq in (3, 1, 5, 2, 1, 3, 3, 4, 2, 5)]
    assert acks == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert [line.text for line in reader.read(job=job).lines] == ["1", "2", "3", "4", "5"]


def test_a_batch_with_overlapping_lines_is_refused_as_a_whole(job, files):
    token = issue(identity(job))
    deliver(token, body(log_item(0, 0, [(T, "a"), (T, "b")])))
    before = rows(), list(files.rglob("*.z"))
    state = item("rank", rank=1, local_rank=1, state="running", at=T)
    said = deliver(token, body(state, log_item(0, 1, [(T, "again")]), seq=2))
    assert said.status == 400 and said.content["errors"][0]["field"] == "log.first_line"
    assert (rows(), list(files.rglob("*.z"))) == before
    assert Rank.objects.get(job=job, rank=1).state == "waiting"
    assert Replica.objects.get(job=job, index=0).batch_seq == 1


def test_a_decompression_bomb_in_the_header_or_in_a_blob_costs_little(job):
    token = issue(identity(job))
    many = json.dumps({"version": 1, "seq": 1, "items": [{"kind": "replica"}] * 300_000}).encode()
    assert deliver(token, struct.pack(">I", len(many)) + many).status == 400
    deep = b'{"version":1,"seq":1,"items":' + b"[" * 1_000_000
    assert deliver(token, struct.pack(">I", len(deep)) + deep).status == 400
    packer = zlib.compressobj(9)
    blob = b"".join(packer.compress(b"0 " + b"\0" * 2**20) for _ in range(1500)) + packer.flush()
    small = log_item(0, 0, [(T, "x")])
    bomb = type(small)("log", {**small.fields, "raw_bytes": 2**24, "bytes": len(blob)}, blob)
    assert deliver(token, body(bomb)).status == 200
    (line,) = reader.read(job=job).lines
    assert line.is_gap and "unpack to more than" in line.text


def test_the_number_of_series_is_capped_with_one_note(job):
    token = issue(identity(job))
    for seq in range(1, 31):
        points = [[T, 1, {f"series {seq} {n}": 1.0 for n in range(50)}]]
        assert deliver(token, body(item("metrics", rank=0, points=points), seq=seq)).status == 200
    assert len(metrics.series(job=job)) == MAX_NAMES
    (note,) = JobEvent.objects.filter(job=job, kind="note")
    assert note.message.startswith(f"Too many series: this job has {MAX_NAMES}; series 5 ")


@pytest.mark.parametrize("at", [0.0, 4e9, 1e300, -1e300])
def test_times_of_a_clock_that_is_far_off_are_clamped(job, at):
    state = item("rank", rank=0, local_rank=0, state="failed", exit_code=1, at=at, error_at=at)
    points = item("metrics", rank=0, points=[[at, 1, {"loss": 1.0}]])
    segment = log_item(0, 0, [(T, "x")])
    segment = type(segment)("log", {**segment.fields, "first_at": at, "last_at": at}, segment.blob)
    assert deliver(issue(identity(job)), body(state, points, segment)).status == 200
    rank = Rank.objects.get(job=job, rank=0)
    seen = [
        rank.ended_at,
        rank.error_at,
        rank.last_line_at,
        metrics.series(job=job)[0].points[0][0],
        reader.read(job=job).lines[0].at,
    ]
    assert all(abs(one.timestamp() - time.time()) < 3700 for one in seen)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items, st.binary(max_size=12))
def test_any_batch_is_applied_or_refused_as_a_whole(job, some, rest):
    seq = Replica.objects.get(job=job, index=0).batch_seq
    before = rows()
    text = json.dumps({"version": 1, "seq": seq + 1, "items": some}).encode()
    said = answer(identity(job), struct.pack(">I", len(text)) + text + rest)
    after = Replica.objects.get(job=job, index=0).batch_seq
    if said.status == 200:
        assert after == seq + 1 == said.content["ack"]
    else:
        assert said.status == 400 and said.content["errors"]
        assert (after, rows()) == (seq, before)
