"""Lines of a container's log: the rank of each, which are stored already, and which are missing."""

import re
import zlib
from pathlib import Path

import pytest

from agent.output.mirror import mirror
from jobs.ingest.container_log_format import ContainerLogReader, without_stored_lines
from jobs.ingest.translate import StreamPosition
from tests.support.builders import batch, item, log_item

WIRE = Path(__file__).resolve().parents[3] / "docs/wire.md"
TIME = "2026-11-21T15:00:00.5Z"
AT = 1795273200.5


def raw(rank: int, number: int, text: str, *, time: str = TIME) -> bytes:
    return f"{time} [{rank}:{number}] {text}".encode()


def read(
    *lines: bytes, positions: dict[int, StreamPosition] | None = None, most_bytes: int = 10_000
) -> ContainerLogReader:
    reading = ContainerLogReader(
        {0: StreamPosition(), 1: StreamPosition()} if positions is None else positions, most_bytes=most_bytes
    )
    for line in lines:
        reading.take(line)
    return reading


def told(reading: ContainerLogReader) -> list[tuple]:
    return [
        (one.kind, one.fields["rank"], one.fields["first_line"], texts(one) if one.blob else one.fields["lines"])
        for one in reading.items()
    ]


def texts(one) -> list[str]:
    text = zlib.decompress(one.blob)
    assert (len(text), len(one.blob)) == (one.fields["raw_bytes"], one.fields["bytes"])
    return [line.partition(" ")[2] for line in text.decode().splitlines()]


@pytest.mark.parametrize("text", [b"plain", b"", b"[0:7] looks like ours", b"\xff\xfe", "…".encode(), b"  spaces  "])
def test_lines_mirrored_by_the_agent_parse_back_exactly(capfdbinary, text):
    mirror(1, text + b"\nsecond\n", 41)
    printed = capfdbinary.readouterr().out.splitlines()
    found = read(*(f"{TIME} ".encode() + line for line in printed), positions={1: StreamPosition(41)})
    assert told(found) == [("log", 1, 41, [text.decode("utf-8", "replace"), "second"])]


def test_interleaved_lines_of_several_ranks_become_one_segment_per_rank():
    found = read(raw(0, 0, "a"), raw(1, 0, "x"), raw(-1, 0, "launcher"), raw(0, 1, "b"))
    assert told(found) == [("log", 0, 0, ["a", "b"]), ("log", 1, 0, ["x"]), ("log", -1, 0, ["launcher"])]
    assert found.began == {0: AT, 1: AT, -1: AT}
    assert found.items()[0].fields["first_at"] == AT


def test_stored_lines_are_skipped_and_missing_lines_become_a_gap():
    found = read(raw(0, 2, "known"), raw(0, 3, "new"), raw(0, 9, "later"), positions={0: StreamPosition(3)})
    assert told(found) == [("log", 0, 3, ["new"]), ("gap", 0, 4, 5), ("log", 0, 9, ["later"])]
    assert found.has_hole


@pytest.mark.parametrize(
    "line",
    [
        b"no time and no rank",
        f"{TIME} said by some other program".encode(),
        raw(7, 0, "of another replica"),
        raw(0, 2**40, "absurd"),
        b"2026-13-99T99:99:99Z [0:x] no number",
    ],
)
def test_lines_that_belong_to_no_rank_of_the_replica_are_skipped(line):
    reading = ContainerLogReader({0: StreamPosition()})
    assert reading.take(line)
    assert reading.items() == ()


def test_the_size_of_a_reading_is_bounded():
    reading = ContainerLogReader({0: StreamPosition()}, most_bytes=100)
    assert [reading.take(raw(0, number, "x" * 30)) for number in range(3)] == [True, True, False]


def test_a_late_batch_loses_the_lines_already_stored():
    late = batch(
        4, log_item(0, 0, [(1, "a"), (2, "b")]), log_item(0, 2, [(3, "c"), (4, "d"), (5, "e")]), item("rank", rank=0)
    )
    left = without_stored_lines(late, {0: StreamPosition(3)})
    assert [(one.kind, one.fields.get("first_line")) for one in left.items] == [("log", 3), ("rank", None)]
    assert texts(left.items[0]) == ["d", "e"]
    assert left.items[0].fields["lines"] == 2


def test_a_late_gap_is_shortened():
    late = batch(1, item("gap", rank=0, first_line=0, lines=10, raw_bytes=9, first_at=1.0, last_at=2.0))
    (left,) = without_stored_lines(late, {0: StreamPosition(4)}).items
    assert (left.fields["first_line"], left.fields["lines"]) == (4, 6)


@pytest.mark.parametrize("rank", [None, [], "0", {}, 99])
def test_malformed_items_pass_through_to_validation(rank):
    late = batch(1, item("log", rank=rank, first_line=0, lines=1, raw_bytes=9))
    assert without_stored_lines(late, {0: StreamPosition(4)}) == late


def test_the_line_prefix_is_the_documented_one():
    assert re.search(r"\[3:1207\] ", WIRE.read_text())
