"""Limits of a batch: however much a job reports, the control plane accepts the batch, and no log line is dropped for it."""

from pathlib import Path

import pytest

from agent.output import outbox
from agent.output.outbox import Outbox
from agent.output.spool import Spool
from agent.wire import batch

MOST_BYTES = 8 << 20  # limit of a batch (docs/wire.md, section 2)


@pytest.fixture
def told(tmp_path: Path):
    """Fill an outbox and flush it. Return the size of the batch and its points by rank."""
    spool = Spool(str(tmp_path / "spool"))
    box = Outbox(spool)

    def tell(points):
        box.text(0, text=b"a line\n", lines=1, at=1.0)
        for rank, point in points:
            box.point(rank, point=point)
        box.flush()
        body = max((tmp_path / "spool").glob("*.batch")).read_bytes()
        items = batch.decode(body).items
        assert [one["lines"] for one in items if one["kind"] == "log"] == [1]
        return len(body), {one["rank"]: one["points"] for one in items if one["kind"] == "metrics"}

    return tell


def test_reports_with_thousands_of_long_names_stay_within_the_batch_limit(told):
    names = {f"grad_norm/{'layer' * 20}/{n}": 0.123456789 for n in range(4000)}
    size, points = told((rank, [float(at), at, names]) for at in range(300) for rank in range(8))
    assert size < MOST_BYTES
    for series in points.values():
        assert (series[0][1], series[-1][1]) == (0, 299) and len(series) > 50
        assert all(len(one[2]) <= outbox.NAMES_LIMIT for one in series)


def test_names_are_truncated_as_the_control_plane_does(told):
    names = {f"{n:02}-{'x' * 80}": float(n) for n in range(60)}
    _, points = told([(0, [1.0, None, names])])
    assert points[0] == [[1.0, None, {name[: outbox.NAME_LIMIT]: number for name, number in list(names.items())[:50]}]]


def test_the_limit_counts_each_batch_separately(told, monkeypatch):
    monkeypatch.setattr(outbox, "NUMBERS_LIMIT", 10)
    for _ in range(3):
        _, points = told((0, [float(at), at, {"loss": 1.0}]) for at in range(10))
        assert len(points[0]) == 10
    _, points = told((0, [float(at), at, {"loss": 1.0}]) for at in range(11))
    assert [one[1] for one in points[0]] == [0, 2, 4, 6, 8, 10]
