"""How benchmarks compute figures from their recordings: pure functions, so that a figure can be trusted."""

import json

import pytest

from bench.audit import creating_seconds, lists_of_a_job, read
from bench.changing import WORD
from bench.lateness import Heard, behind, heard
from bench.replay import Replay
from bench.row_news import RowChange


def line(verb: str, kind: str, *, at: str, until: str, code: int = 201, uri: str = "/api/v1/x") -> str:
    return json.dumps(
        {
            "verb": verb, "objectRef": {"resource": kind}, "requestURI": uri, "responseStatus": {"code": code},
            "requestReceivedTimestamp": f"2026-11-21T10:00:{at}Z", "stageTimestamp": f"2026-11-21T10:00:{until}Z",
        }
    )  # fmt: skip


def test_creating_counts_from_the_first_pod_received_to_the_last_answered():
    asked = read(
        [
            line("create", "services", at="00.000000", until="09.000000"),
            line("create", "pods", at="01.000000", until="01.500000"),
            line("create", "pods", at="01.250000", until="03.000000"),
            line("create", "pods", at="04.000000", until="05.000000", code=429),
            "",
        ]
    )
    assert creating_seconds(asked) == pytest.approx(2.0)
    assert [one.is_mutating for one in asked] == [True] * 4


def test_only_a_list_filtered_by_attempt_counts_as_a_list_of_a_jobs_pods():
    ours, whole = "/api/v1/pods?labelSelector=x%2Fattempt%3D1&limit=5", "/api/v1/pods?labelSelector=x%2Frun&limit=500"
    asked = read([line("list", "pods", at="01.0", until="01.1", uri=uri) for uri in (ours, whole)])
    assert lists_of_a_job(asked, attempt_label="x%2Fattempt") == 1


def told(at: float, number: int) -> RowChange:
    return RowChange(at, "a", f"{WORD} {number}", "1")


def test_a_row_with_a_later_change_covers_the_earlier_ones():
    changes = [Heard(1.0, "a", 1), Heard(1.1, "a", 2), Heard(1.2, "a", 3)]
    late, lost = behind(changes, [told(1.3, 2), told(1.5, 3)])
    assert late == pytest.approx([0.3, 0.2, 0.3])
    assert lost == 0


def test_a_change_that_never_reached_a_row_is_lost():
    late, lost = behind([Heard(1.0, "a", 7), Heard(1.0, "b", 8)], [told(1.1, 6)])
    assert (late, lost) == ([], 2)


def event(pod: str, version: int, said: str) -> bytes:
    condition = {"type": "PodScheduled", "message": said}
    meta = {"name": pod, "resourceVersion": str(version)}
    return json.dumps(
        {"type": "MODIFIED", "object": {"metadata": meta, "status": {"conditions": [condition]}}}
    ).encode()


def test_only_changes_made_by_the_benchmark_are_counted():
    lines = [b"1.5\t" + event("a", 5, f"{WORD} 3"), b"1.6\t" + event("a", 6, "0/3 nodes are available")]
    assert heard(lines) == [Heard(1.5, "a", 3)]


def test_a_replay_begins_with_each_pods_first_state_and_resumes_at_any_version():
    replay = Replay([event("a", 5, "x"), event("b", 6, "y"), event("a", 9, "z")], rate=1000)
    assert [json.loads(one)["object"]["status"]["conditions"] for one in replay.first] == [[], []]
    assert [replay.after(version) for version in (1, 5, 6, 9)] == [0, 1, 2, 3]
