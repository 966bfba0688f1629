"""What agents notice about a job is in its history once per attempt; what cannot be read changes nothing."""

import time

import pytest

from common.errors import InvalidInput
from jobs.ingest import apply
from jobs.models import JobEvent, LogSegment
from tests.support.builders import batch, identity, item, log_item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]
T = float(int(time.time()) - 600)
CARRIED = {"files": 1, "bytes": 6, "attempt": 1, "names": ["ckpt\ud800.pt"], "left": 0}


def test_the_history_says_once_what_went_on(lab):
    job = lab.running()
    for index in (0, 1):
        apply.apply_batch(identity=identity(job, index), batch=batch(1, item("folder", carried=CARRIED)))
    (note,) = JobEvent.objects.filter(job=job, kind="note").values_list("message", flat=True)
    assert note == "Working folder: worker-0 continues with 1 file (6 B) of attempt 1: ckpt?.pt"


def test_the_history_says_once_that_ranks_train_alone(lab):
    job = lab.running()
    for index, ranks in ((0, [0, 1]), (1, [2, 3])):
        apply.apply_batch(identity=identity(job, index), batch=batch(1, item("alone", ranks=ranks)))
    (note,) = JobEvent.objects.filter(job=job, kind="note").values_list("message", flat=True)
    assert note.startswith("Ranks train alone: ranks 0, 1 of worker-0 take steps")


def test_an_item_that_cannot_be_read_is_refused_before_anything_is_written(lab):
    job = lab.running()
    with pytest.raises(InvalidInput, match="folder"):
        apply.apply_batch(
            identity=identity(job),
            batch=batch(1, log_item(0, 0, [(T, "x")]), item("folder", carried={"files": "many"})),
        )
    assert not LogSegment.objects.filter(job=job).exists()
