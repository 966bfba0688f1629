"""Which verdicts count as right, and how scores are summed."""

import pytest

from bench.verdicts.cases import Case, Label
from bench.verdicts.score import Played, by_kind, report, score, slowest, wrong_percent

LABEL = Label(
    ("data",), ranks=(2,), headline="EOFError: cut", without=("exited",), traceback=("gzip",), certainty="sure"
)
RIGHT = {
    "rank": 2, "kind": "data", "headline": "rank 2: EOFError: cut short", "certainty": "sure", "traceback": ["File gzip.py", "EOFError"],
}  # fmt: skip


def played(verdict, label=LABEL, seconds=0.5) -> Played:
    return Played(Case("some", label), verdict, seconds)


def test_a_verdict_that_matches_the_label_is_right():
    assert score(LABEL, RIGHT).wrong == []


@pytest.mark.parametrize(
    "change, wrong",
    [
        ({"rank": 0}, ["rank"]),
        ({"rank": None}, ["rank"]),
        ({"kind": "user_code"}, ["kind"]),
        ({"kind": "unknown"}, ["kind"]),
        ({"headline": "rank 2 exited: EOFError: cut"}, ["headline"]),
        ({"headline": "rank 2 failed"}, ["headline"]),
        ({"headline": None}, ["headline"]),
        ({"certainty": "likely"}, ["certainty"]),
        ({"traceback": ["EOFError"]}, ["traceback"]),
    ],
)
def test_each_part_is_scored_separately(change, wrong):
    assert score(LABEL, {**RIGHT, **change}).wrong == wrong


@pytest.mark.parametrize("verdict", [None, {}])
def test_a_missing_verdict_is_wrong_in_every_part_of_the_label(verdict):
    assert played(verdict).score.wrong == ["rank", "kind", "headline", "certainty", "traceback"]
    of_cluster = Label(("deadline",), headline="deadline")
    assert played(verdict, of_cluster).score.wrong == ["rank", "kind", "headline"]


def test_any_of_several_ranks_and_kinds_is_right():
    label = Label(("data", "user_code"), ranks=(0, 1), headline="x")
    assert score(label, {"rank": 1, "kind": "user_code", "headline": "x"}).wrong == []


@pytest.mark.parametrize(
    "replicas, said, is_right",
    [
        (("worker-1",), "worker-1", True),
        (("worker-1",), "worker-0", False),
        (("worker-1", None), "", True),
        (("worker-1",), "", False),
        ((), "worker-0", True),
    ],
)
def test_if_no_rank_failed_the_replica_is_scored(replicas, said, is_right):
    label = Label(("image",), replicas=replicas, headline="x")
    assert score(label, {"rank": None, "replica": said}).rank is is_right
    assert score(label, {"rank": 1, "replica": said}).rank is False


def test_a_wrong_verdict_marked_sure_counts_twice():
    right, wrong = played(RIGHT), {**RIGHT, "kind": "disk"}
    assert wrong_percent([right, played({**wrong, "certainty": "likely"})], "kind") == 50
    assert wrong_percent([right, played(wrong)], "kind") == 100
    assert wrong_percent([right, played(wrong)], "rank") == 0
    assert wrong_percent([right, played(None)], "rank") == 50


def test_the_slowest_verdict_and_the_sums_of_each_kind():
    several = [played(RIGHT, seconds=1.5), played(None, seconds=None), played({**RIGHT, "rank": 0}, seconds=0.2)]
    assert slowest(several) == 1.5
    assert by_kind(several) == {"data": {"cases": 3, "rank": 1, "kind": 2, "headline": 2, "slowest_seconds": 1.5}}


def test_a_report_names_the_expected_and_the_actual_verdict():
    told = "\n".join(report(played({**RIGHT, "kind": "disk"})))
    assert "some: wrong in kind" in told
    assert "expected rank 2, data, sure" in told
    assert "'kind': 'disk'" in told
