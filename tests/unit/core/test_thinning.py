"""Which lines of a batch are kept when a budget is used up. Every line is either kept or in a gap."""

import os
import zlib

import pytest

from jobs.core.thinning import END_BYTES, MINUTE_BYTES, MOST_UNPACKED, Level, level, thin

T = 1_763_700_000.0  # a whole minute


def made(*streams: tuple[int, int, list[str]], at: float = T + 61) -> tuple[list[dict], bytes]:
    """Segments of (rank, first line, lines), and their blobs."""
    segments, data = [], b""
    for rank, first, lines in streams:
        text = "".join(f"{int(at * 1000)} {line}\n" for line in lines).encode()
        blob = zlib.compress(text)
        segments.append(
            {"rank": rank, "first_line": first, "lines": len(lines), "first_at": at - 1, "last_at": at,
             "raw_bytes": len(text), "is_text": True, "offset": len(data), "size_bytes": len(blob)}
        )  # fmt: skip
        data += blob
    return segments, data


def lines_of(kept, number: int) -> list[str]:
    one = kept.segments[number]
    text = zlib.decompress(kept.data[one["offset"] : one["offset"] + one["size_bytes"]]).decode()
    assert len(text) == one["raw_bytes"] and text.count("\n") == one["lines"]
    return [line.partition(" ")[2] for line in text.splitlines()]


def whole(segments: list[dict]) -> list[tuple[int, int]]:
    """The range of lines of each segment; consecutive segments must leave no hole."""
    return [(one["first_line"], one["first_line"] + one["lines"]) for one in segments]


@pytest.mark.parametrize(
    ("used", "budget", "expected"),
    [
        (10**12, 0, Level.FULL),  # 0 is no limit
        (99, 100, Level.FULL),
        (100, 100, Level.THINNED),
        (110, 100, Level.ENDS),
        (119, 100, Level.ENDS),
        (120, 100, Level.NOTHING),
    ],
)
def test_the_level_follows_from_the_used_share_of_the_budget(used, budget, expected):
    assert level(used, budget) is expected


LONG = [f"line {number}: {os.urandom(40).hex()}" for number in range(3000)]


def test_below_the_budget_everything_is_kept_unchanged():
    segments, data = made((0, 0, LONG), (1, 0, ["short"]))
    kept = thin(segments, data, level=Level.FULL, last_at={}, ended=frozenset())
    assert (kept.segments, kept.data, kept.is_cut) == (segments, data, False)


def test_bytes_outside_of_all_segments_are_not_stored():
    segments, data = made((0, 0, ["a"]))
    kept = thin(segments, data + b"x" * 1000, level=Level.FULL, last_at={}, ended=frozenset())
    assert kept.data == data


def test_thinning_keeps_the_last_lines_of_each_minute_and_turns_the_rest_into_a_gap():
    segments, data = made((0, 500, LONG), (0, 3500, ["soon after"]))
    kept = thin(segments, data, level=Level.THINNED, last_at={0: T + 30}, ended=frozenset())
    assert kept.is_cut
    gap, text, later = kept.segments
    assert [one["is_text"] for one in kept.segments] == [False, True, False]
    assert whole(kept.segments) == [(500, text["first_line"]), (text["first_line"], 3500), (3500, 3501)]
    assert lines_of(kept, 1) == LONG[-text["lines"] :] and text["lines"] > 10
    assert gap["raw_bytes"] + text["raw_bytes"] == segments[0]["raw_bytes"]
    assert len(kept.data) <= MINUTE_BYTES and later["size_bytes"] == 0


def test_no_more_lines_are_kept_within_the_same_minute():
    segments, data = made((0, 0, ["a"]))
    kept = thin(segments, data, level=Level.THINNED, last_at={0: T + 60}, ended=frozenset())
    assert (kept.data, kept.is_cut, kept.segments[0]["is_text"]) == (b"", True, False)


def test_a_short_text_in_a_new_minute_is_kept_whole():
    segments, data = made((0, 0, ["step 1", "step 2"]))
    kept = thin(segments, data, level=Level.THINNED, last_at={0: T}, ended=frozenset())
    assert (kept.segments, kept.data, kept.is_cut) == (segments, data, False)


@pytest.mark.parametrize("at_level", [Level.THINNED, Level.ENDS])
def test_the_last_output_of_an_ended_rank_is_kept(at_level):
    flood = [LONG[0]] * 20_000
    segments, data = made((0, 0, flood), (0, 20_000, [*flood, "ValueError: label 17"]), (1, 0, LONG))
    kept = thin(segments, data, level=at_level, last_at={0: T + 60, 1: T + 60}, ended=frozenset({0}))
    assert [one["is_text"] for one in kept.segments] == [False, False, True, False]
    assert lines_of(kept, 2)[-1] == "ValueError: label 17"
    assert kept.segments[2]["raw_bytes"] <= END_BYTES


def test_at_the_last_level_not_even_the_final_output_is_kept():
    segments, data = made((0, 0, ["the end"]))
    kept = thin(segments, data, level=Level.NOTHING, last_at={}, ended=frozenset({0}))
    assert (kept.data, kept.segments[0]["is_text"]) == (b"", False)


def test_a_batch_that_would_unpack_beyond_the_limit_is_not_unpacked():
    text = b"1 \n" * (MOST_UNPACKED // 3)
    one, _ = made((0, 0, ["x"]))
    blob = zlib.compress(text)
    huge = [
        {**one[0], "rank": rank, "lines": len(text) // 3, "raw_bytes": len(text), "offset": 0, "size_bytes": len(blob)}
        for rank in range(50)
    ]
    kept = thin(huge, blob, level=Level.ENDS, last_at={}, ended=frozenset(range(50)))
    assert [one["is_text"] for one in kept.segments] == [False, True] + [False] * 49


@pytest.mark.parametrize("lie", [{"raw_bytes": 3}, {"lines": 7}, {"raw_bytes": 10**6}])
def test_text_that_contradicts_its_row_becomes_a_gap(lie):
    segments, data = made((0, 0, ["a", "b"]))
    kept = thin([{**segments[0], **lie}], data, level=Level.ENDS, last_at={}, ended=frozenset({0}))
    assert [one["is_text"] for one in kept.segments] == [False]


def test_a_single_line_longer_than_the_kept_size_becomes_a_gap():
    segments, data = made((0, 0, ["x" * (MINUTE_BYTES + 1)]))
    kept = thin(segments, data, level=Level.THINNED, last_at={}, ended=frozenset())
    assert [one["is_text"] for one in kept.segments] == [False]
