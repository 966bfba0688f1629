"""Any bytes sent as a batch become rows that the database accepts, or are refused with the name of the field."""

import json
import math
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import InvalidInput
from jobs.core import batch
from jobs.core.batch import MAX_BATCH_BYTES, MAX_ITEMS, parse
from jobs.ingest import translate
from jobs.ingest.translate import AHEAD_SECONDS, BEHIND_SECONDS, MAX_NAMES, Baseline, StreamPosition

NOW = 1_800_000_000.0
BASELINE = Baseline({0: StreamPosition(), 1: StreamPosition(100, NOW - 50)}, since=NOW - 1000)
BIGINT = 2**63 - 1


def body(*items: dict, seq: object = 1, rest: bytes = b"", **header) -> bytes:
    text = json.dumps({"version": 1, "seq": seq, "sent_at": NOW, "items": list(items), **header}).encode()
    return struct.pack(">I", len(text)) + text + rest


def read(*items: dict, rest: bytes = b"", baseline: Baseline = BASELINE) -> translate.RowChanges:
    return translate.read(parse(body(*items, rest=rest)), baseline=baseline, now=NOW)


def log(**changes) -> dict:
    return {"kind": "log", "rank": 0, "seq": 1, "first_line": 0, "lines": 1, "first_at": NOW - 5, "last_at": NOW - 4,
            "raw_bytes": 10, "bytes": 0, **changes}  # fmt: skip


numbers = st.one_of(
    st.integers(), st.integers(-(10**400), 10**400), st.floats(), st.sampled_from([-1, 0, 2**31, 2**53, 2**63, 1e308])
)
odd = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=20), st.just("x" * 3000)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
names = st.sampled_from(
    ["rank", "local_rank", "pid", "state", "exit_code", "signal", "at", "error_at", "is_stopped", "seq", "first_line", "lines",
     "first_at", "last_at", "raw_bytes", "bytes", "points", "cpu", "rss_bytes", "gpu", "gpu_mem_bytes", "reason", "carried", "lost", "ranks"]
)  # fmt: skip
points = st.lists(
    st.tuples(numbers, st.one_of(st.none(), numbers), st.dictionaries(st.text(max_size=5), numbers)), max_size=3
)
sane = st.fixed_dictionaries(
    {"kind": st.sampled_from(sorted(batch.KINDS)), "rank": st.integers(-1, 2)},
    optional={
        "state": st.sampled_from(["running", "failed", "succeeded"]), "points": points, "lines": st.integers(0, 5),
        "first_line": st.integers(0, 300), "bytes": st.integers(0, 9), "raw_bytes": st.integers(0, 99), "at": numbers,
        "first_at": numbers, "last_at": numbers, "cpu": numbers, "rss_bytes": numbers, "exit_code": numbers, "signal": numbers,
    },
)  # fmt: skip
items = st.lists(
    st.builds(lambda one, other: {**one, **other}, sane, st.dictionaries(names, odd, max_size=2)), max_size=4
)


def assert_rows_fit(found: translate.RowChanges) -> None:
    """Rows obey docs/wire.md and the limits of the columns; times stay close to the control plane's clock."""
    least, most = BASELINE.since - BEHIND_SECONDS, NOW + AHEAD_SECONDS
    for one in found.segments:
        assert 0 <= one["first_line"] <= one["first_line"] + one["lines"] <= BIGINT and 0 < one["lines"] < 2**31
        assert least <= one["first_at"] <= one["last_at"] <= most and 0 <= one["raw_bytes"] < 2**31
    for chunk in found.chunks.values():
        assert len(chunk["times"]) == len(chunk["steps"]) == len(chunk["values"]) > 0
        assert all(value is None or math.isfinite(value) for value in chunk["values"])  # None stands for NaN
        assert all(least <= at <= most for at in chunk["times"])
        assert all(step is None or -BIGINT <= step <= BIGINT for step in chunk["steps"])
        assert "\0" not in chunk["name"] and len(chunk["name"]) <= 60
    for rank, told in found.ranks.items():
        assert rank in BASELINE.positions
        assert told.get("exit_code") is None or told.get("signal") is None
        assert all(abs(told.get(name) or 0) < 2**31 for name in ("exit_code", "signal", "pid"))
        assert all(abs(told.get(name) or 0) <= BIGINT for name in ("step", "lines", "rss_bytes", "gpu_mem_bytes"))
    json.dumps([found.segments, list(found.chunks.values()), list(found.ranks.values())], allow_nan=False)


def outcome(act, *given):
    """The result, or the InvalidInput that was raised; any other exception fails the test."""
    try:
        return act(*given)
    except InvalidInput as error:
        return error


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_parse_as_a_batch_or_are_refused(raw):
    for one in (raw, struct.pack(">I", len(raw)) + raw):
        found = outcome(parse, one)
        assert isinstance(found, batch.Batch) or found.problems[0].field


@settings(max_examples=600, deadline=None)
@given(items, st.binary(max_size=20))
def test_any_items_become_valid_rows_or_are_refused_with_the_field(some, rest):
    found = outcome(lambda: read(*some, rest=rest))
    if isinstance(found, translate.RowChanges):
        assert_rows_fit(found)
    else:
        assert found.problems[0].field and found.problems[0].message


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["version", "seq", "sent_at", "items", "x"]), odd, max_size=5))
def test_any_header_parses_or_is_refused(header):
    text = json.dumps(header).encode()
    try:
        found = parse(struct.pack(">I", len(text)) + text)
    except InvalidInput:
        return
    assert 1 <= found.seq <= 2**53


@pytest.mark.parametrize(
    "raw, field",
    [
        (struct.pack(">I", 2**32 - 1) + b"{}", "header"),
        (struct.pack(">I", 200_000) + b"[" * 200_000, "header"),
        (body(*[{"kind": "sample"}] * (MAX_ITEMS + 1)), "items"),
        (body({"kind": "replica"}, rest=b"more than was said"), "body"),
        (body(log(bytes=5), rest=b"1234"), "log.bytes"),
        (body(log(bytes=-1)), "log.bytes"),
        (b"\0" * (MAX_BATCH_BYTES + 1), "body"),
        (body(seq=2**60), "batch.seq"),
        (body(version=2), "version"),
        (body("replica"), "items"),  # type: ignore[arg-type]
    ],
)
def test_a_malformed_batch_is_refused_with_the_field(raw, field):
    with pytest.raises(InvalidInput) as refused:
        parse(raw)
    assert refused.value.problems[0].field == field


@pytest.mark.parametrize(
    "one, field",
    [
        (log(rank="1"), "log.rank"),
        (log(rank=True), "log.rank"),
        (log(rank=1, first_line=99), "log.first_line"),  # overlaps the 100 lines stored already
        (log(lines=2**31), "log.lines"),
        (log(raw_bytes=2**40), "log.raw_bytes"),
        (log(first_at="yesterday"), "log.first_at"),
        ({"kind": "rank", "rank": 0, "state": "failed", "exit_code": 2**40}, "rank.exit_code"),
        ({"kind": "rank", "rank": 0, "state": "failed", "signal": 0}, "rank.signal"),
        ({"kind": "rank", "rank": 0, "state": "running", "pid": -5}, "rank.pid"),
        ({"kind": "sample", "rank": 0, "rss_bytes": 1e308}, "sample.rss_bytes"),
        ({"kind": "sample", "rank": 0, "cpu": -1}, "sample.cpu"),
        ({"kind": "sample", "rank": 0, "cpu": 10**400}, "sample.cpu"),
        ({"kind": "metrics", "rank": 0, "points": {"a": 1}}, "metrics.points"),
        ({"kind": "nodes"}, "nodes.nodes"),
        ({"kind": "nodes", "nodes": [1]}, "nodes.nodes"),
        ({"kind": "nodes", "nodes": [{}] * 1001}, "nodes.nodes"),
        ({"kind": "nodes", "nodes": [{"name": "head-0", "cpu": 1}]}, "nodes.cpu"),
        ({"kind": "nodes", "nodes": [{"name": "head-0", "gpu": [0, -1]}]}, "nodes.gpu"),
        (
            {"kind": "nodes", "nodes": [{"name": "head-0", "object_store_bytes": [0, 1e300]}]},
            "nodes.object_store_bytes",
        ),
        ({"kind": "nodes", "nodes": [{"name": "head-0", "actors": "3"}]}, "nodes.actors"),
        ({"kind": "nodes", "nodes": [], "waiting": -1}, "nodes.waiting"),
        ({"kind": "metrics", "rank": 0, "points": [[NOW, 1, {"loss": "low"}]]}, "metrics.points"),
    ],
)
def test_an_invalid_value_is_refused_with_the_field(one, field):
    with pytest.raises(InvalidInput) as refused:
        read({"kind": "replica", "state": "running"}, one)
    assert refused.value.problems[0].field == field


def test_only_what_is_known_of_a_node_is_kept():
    told = {"name": "worker-0", "cpu": [1.5, 2], "actors": 3, "secret": "x"}
    kept = {"name": "worker-0", "cpu": [1.5, 2.0], "actors": 3}
    found = read(
        {"kind": "nodes", "framework": "Ray 2.60.0", "nodes": [told, {"name": "\0" * 100}], "waiting": 48, "more": 1}
    )
    assert found.nodes == {
        "framework": "Ray 2.60.0", "nodes": [kept, {"name": "\N{REPLACEMENT CHARACTER}" * 80}], "waiting": 48,
    }  # fmt: skip


def test_segments_within_one_batch_may_not_overlap():
    with pytest.raises(InvalidInput):
        read(log(lines=5), log(first_line=4))


def test_a_clock_that_jumps_keeps_the_order_of_the_lines():
    jumps = [NOW + 1e9, NOW - 1e9, NOW - 3, 0.0, NOW]
    found = read(*(log(first_line=n, first_at=at, last_at=at - 1) for n, at in enumerate(jumps))).segments
    times = [at for one in found for at in (one["first_at"], one["last_at"])]
    assert times == sorted(times) and times[-1] <= NOW + AHEAD_SECONDS


def test_a_stream_continues_no_earlier_than_its_last_line():
    (one,) = read(log(rank=1, first_line=100, first_at=NOW - 500, last_at=NOW - 400)).segments
    assert one["first_at"] == one["last_at"] == NOW - 50


def test_metrics_out_of_range_are_kept_as_not_finite_and_never_refused():
    values = {"nan": None, "huge": 10**400, "large": 1e308, "fine": 1}
    found = read({"kind": "metrics", "rank": 0, "points": [[NOW, 10**30, values]]})
    assert {name: chunk["values"] for (_, name), chunk in found.chunks.items()} == {
        "nan": [None], "huge": [None], "large": [1e308], "fine": [1.0],
    }  # fmt: skip
    assert "step" not in found.ranks.get(0, {})


def test_the_number_of_points_in_a_batch_is_limited():
    point = [NOW, 1, {}]
    half = {"kind": "metrics", "rank": 0, "points": [point] * (translate.MOST_POINTS // 2)}
    read(half, half)
    with pytest.raises(InvalidInput, match="more than the 128000") as refused:
        read(half, half, {**half, "points": [point]})
    assert refused.value.problems[0].field == "metrics.points"


def test_the_number_of_values_in_a_batch_is_limited():
    point = [NOW, 1, {f"n{number}": 1.0 for number in range(50)}]
    points = [point] * (translate.MOST_NUMBERS // 50)
    read({"kind": "metrics", "rank": 0, "points": points})
    with pytest.raises(InvalidInput, match="more than the 128000 numbers") as refused:
        read({"kind": "metrics", "rank": 0, "points": points}, {"kind": "metrics", "rank": 0, "points": [point]})
    assert refused.value.problems[0].field == "metrics.points"


def test_series_beyond_the_limit_are_dropped_and_named():
    baseline = Baseline(BASELINE.positions, BASELINE.since, names=frozenset(f"old{n}" for n in range(MAX_NAMES - 1)))
    points = [[NOW, n, {f"new{n}": 1.0, "old5": 2.0}] for n in range(3)]
    found = read({"kind": "metrics", "rank": 0, "points": points}, baseline=baseline)
    assert {name for _, name in found.chunks} == {"new0", "old5"}
    assert (found.names, found.left_out) == ({"new0"}, {"new1", "new2"})


def test_an_item_of_an_unknown_kind_may_carry_bytes():
    found = read({"kind": "hologram", "bytes": 4}, {"kind": "replica", "state": "running"}, rest=zlib.compress(b"x"))
    assert found.has_replica_state


@pytest.mark.parametrize(
    ("before", "now", "is_news"),
    [
        ({}, {"cpu": 0.0}, True),
        ({"cpu": 0.0}, {"cpu": 0.004}, False),
        ({"cpu": 0.0}, {"cpu": 0.02}, True),
        ({"rss_bytes": 812 * 2**20}, {"rss_bytes": 812 * 2**20 + 4096}, False),
        ({"rss_bytes": 812 * 2**20}, {"rss_bytes": 813 * 2**20}, True),
        ({"gpu": 0.931, "gpu_watts": 612.2}, {"gpu": 0.93, "gpu_watts": 611.9}, False),
        ({"gpu": 0.93, "gpu_watts": 612.2}, {"gpu": 0.93, "gpu_watts": 613.0}, True),
    ],
)
def test_pages_are_told_of_a_sample_only_if_they_would_show_another_value(before, now, is_news):
    sampled = tuple(before.get(name) for name in translate.SAMPLED)
    baseline = Baseline({0: StreamPosition(sampled=sampled)}, since=NOW - 1000)
    changes = read({"kind": "sample", "rank": 0, "at": NOW, **now}, baseline=baseline)
    assert ("samples" in changes.what) is is_news
    assert set(now) <= set(changes.ranks[0]), "it is stored all the same"
