"""A cursor is read back as it was written, and any other text is refused with a remedy."""

import base64
import json
import zlib

import pytest

from common.errors import Unreadable
from jobs.core.cursor import Cursor, decode


def packed(value) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(zlib.compress(text.encode())).decode().rstrip("=")


def test_a_cursor_is_read_back_as_it_was_written():
    cursor = Cursor(3, {(7, -1): 0, (7, 0): 12, (9, 1): 4}, floor=5, top=8, top_at=1_763_700_000.0)
    assert decode(cursor.encode()) == cursor
    assert decode(packed([3, 5, 8, 1_763_700_000, [[7, -1, 0], [7, 0, 12], [9, 1, 4]]])) == cursor  # as once written


@pytest.mark.parametrize(
    "text",
    [
        "rubbish", "\N{GRINNING FACE}", packed("[1"), packed([1, 2, 3]), packed("[NaN, 0, 0, 0, []]"), packed("[Infinity, 0, 0, 0, []]"),
        packed([10**30, 0, 0, 0, []]), packed([2**31, 0, 0, 0, []]), packed([1, 2**63, 0, 0, []]), packed([1, 0, 0, 0, [[2**64, 0, 0]]]),
        packed([1, 0, 0, 0, [[1, 0, -5]]]), packed([1, 0, 0, 0, [["1", 0, 0]]]), packed("[1, 0, 0, 1e999, []]"), packed("[" * 100_000),
        packed([-1, 0, 0, 0, []]), packed({"a": 1}), packed([1, 0, 0, 0, [[1, 2**31, 3]]]), packed([1, 0, 0, 0, [1], [2**31], [5]]),
        packed([1, 0, 0, 0, [1, 0], [2**31 - 1, 1], [5, 5]]),
    ],
    ids=range(19),
)  # fmt: skip
def test_any_other_text_is_refused(text):
    with pytest.raises(Unreadable) as refusal:
        decode(text)
    (problem,) = refusal.value.problems
    assert problem.field == "cursor" and "omit it" in problem.message
