"""Ranks that an agent says train alone become a sentence, or are refused by the field's name."""

import pytest

from common.errors import InvalidInput
from jobs.core import lonely_ranks
from jobs.core.batch import Item


def test_they_are_named_with_what_to_change():
    words = lonely_ranks.note((0, 1), replica="worker-0")
    assert words.startswith("ranks 0, 1 of worker-0 take steps, but have not joined a process group")
    assert lonely_ranks.note((3,), replica="worker-3").startswith("rank 3 of worker-3 takes steps, but has not")
    assert "6, 7 and others of" in lonely_ranks.note(tuple(range(9)), replica="worker-0")


@pytest.mark.parametrize("ranks", [None, [], [-1], [True], ["0"], [2**31], 3])
def test_what_names_no_ranks_is_refused(ranks):
    with pytest.raises(InvalidInput, match="alone"):
        lonely_ranks.read(Item("alone", {"ranks": ranks}))
