"""What an agent says of files in the working folder becomes a sentence, or is refused by the field's name."""

import pytest

from common.errors import InvalidInput
from jobs.core import working_folders
from jobs.core.batch import Item


def note(**fields) -> str:
    return working_folders.note(working_folders.read(Item("folder", fields)), replica="worker-0")


def test_files_that_went_on_are_counted_and_named():
    carried = {"files": 7, "bytes": 3 << 20, "attempt": 1, "names": ["a.pt", "b.pt"], "left": 0}
    assert note(carried=carried) == "worker-0 continues with 7 files (3.0 MiB) of attempt 1: a.pt, b.pt and 5 more"
    assert note(carried={**carried, "files": 1, "names": ["a.pt"], "left": 2}).endswith(
        "1 file (3.0 MiB) of attempt 1: a.pt; 2 more could not be moved and stay in the folder of that attempt"
    )


def test_files_none_of_which_could_be_moved_are_counted():
    words = note(carried={"files": 0, "bytes": 0, "attempt": 1, "names": [], "left": 3})
    assert words == "worker-0 begins without the 3 files of attempt 1, which could not be moved and stay in its folder"


def test_files_that_are_gone_are_named_with_the_way_out():
    words = note(lost={"files": 1, "bytes": 6, "names": ["out/model.pt"]})
    assert words.startswith(
        "1 file (6 B) that worker-0 wrote there is gone with its pod: out/model.pt. What is written"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"lost": 3},
        {"lost": {"files": "x", "bytes": 0, "names": []}},
        {"lost": {"files": 1, "bytes": 0, "names": [1]}},
        {"carried": {"files": 1, "bytes": 0, "names": []}},
    ],
)
def test_what_cannot_be_read_is_refused(fields):
    with pytest.raises(InvalidInput, match="folder"):
        note(**fields)
