"""A pod's status becomes a reason that a user can act on."""

import pytest

from jobs.clusters.kubernetes.api.objects import LONGEST_WORDS, whole, words
from jobs.clusters.kubernetes.facts.pod_reasons import no_place
from tests.unit.clusters.kubernetes.test_pods import condition, ended, read, waiting

SHORT = "0/20 nodes are available: 20 Insufficient nvidia.com/gpu. preemption: 0/20 nodes are available: 20 No preemption victims found for incoming pod."  # fmt: skip
MIXED = "1/9 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }, 2 Insufficient cpu, 5 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/9 nodes are available: 9 Preemption is not helpful for scheduling."  # fmt: skip


@pytest.mark.parametrize(
    "said, told",
    [
        (SHORT, "no place for it: 0 of 20 nodes fit: 20 without enough free nvidia.com/gpu; ask for less, or wait until other work ends"),
        (
            MIXED,
            "no place for it: 1 of 9 nodes fit: 1 had untolerated taint {node.kubernetes.io/unreachable: }, 2 without enough free cpu, "
            "5 didn't match Pod's node affinity/selector; ask for less, or wait until other work ends",
        ),
        ('0/1 nodes are available: persistentvolumeclaim "scratch" not found. not found', 'no place for it: 0 of 1 nodes fit: persistentvolumeclaim "scratch" not found. not found'),
        ("no nodes available to schedule pods", "no place for it: no nodes available to schedule pods"),
        ("", "no place for it: "),
    ],
)  # fmt: skip
def test_the_schedulers_summary_becomes_a_readable_reason(said, told):
    assert no_place(said) == told


def test_out_of_memory_names_the_limit():
    made = read(phase="Failed", spec={"containers": [{"resources": {"limits": {"memory": "64Gi"}}}]}, **ended(137, reason="OOMKilled"))  # fmt: skip
    assert (made.signal, made.reason) == (9, "out of memory: it used more than its limit of 64Gi; raise memory in LIMITS, or use less")  # fmt: skip


def test_out_of_memory_without_a_limit_names_the_node():
    made = read(phase="Failed", spec={"nodeName": "n-3"}, **ended(137, reason="OOMKilled"))
    assert made.reason == "out of memory: it has no limit, and its node n-3 had no more to give"


@pytest.mark.parametrize(
    "said, told",
    [
        ("The node was low on resource: memory.", "evicted from node n-3: The node was low on resource: memory."),
        (
            'Usage of EmptyDir volume "tmp" exceeds the limit "20Gi".',
            'evicted from node n-3: Usage of EmptyDir volume "tmp" exceeds the limit "20Gi". Raise TMP_LIMIT, or write less there.',
        ),
        ("", "evicted from node n-3: it does not say why"),
    ],
)  # fmt: skip
def test_an_eviction_is_explained_with_a_remedy(said, told):
    assert read(phase="Failed", reason="Evicted", message=said, spec={"nodeName": "n-3"}).reason == told


@pytest.mark.parametrize(
    "reason, told",
    [
        ("PreemptionByScheduler", "a pod of a higher priority took its place (PreemptionByScheduler): said"),
        ("EvictionByEvictionAPI", "its node is being emptied (EvictionByEvictionAPI): said"),
        ("SomethingNew", "the cluster ends it (SomethingNew): said"),
    ],
)
def test_the_cause_of_a_disruption_is_named(reason, told):
    assert read(phase="Running", **condition("DisruptionTarget", "True", reason, "said")).reason == told


def test_a_pod_deleted_because_its_node_is_silent_is_lost():
    """Controllers write this for an unresponsive node; the kubelet of a drained node still reports its pods."""
    target = condition("DisruptionTarget", "True", "DeletionByTaintManager", "said")["conditions"]
    for ready, state in (({}, "lost"), ({"reason": "ContainersNotReady"}, "running")):
        found = read(
            phase="Running", conditions=[*target, {"type": "Ready", "status": "False", **ready}],
            spec={"nodeName": "n-3"},
        )  # fmt: skip
        assert found.state == state
        assert found.is_alive, "it may still train there"
    assert read(phase="Running", conditions=target).state == "running"


def test_a_crash_loop_is_reported_with_its_exit_code():
    looping = waiting("CrashLoopBackOff", "back-off 10s")
    looping["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 2}}
    found = read(phase="Pending", **looping)
    assert found.reason == "it ends as soon as it is started, the last time with code 2: back-off 10s"


def test_a_failed_pull_names_the_image_and_the_runtimes_message():
    found = read(phase="Pending", **waiting("ErrImagePull", "pull access denied"))
    assert found.reason == "the image x:1 cannot be pulled (ErrImagePull): pull access denied"


# -- hostile and malformed input


def test_ten_megabytes_of_message_are_cut():
    found = read(phase="Failed", reason="Evicted", message="x\x00y" * 3_500_000)
    assert len(found.reason) <= LONGEST_WORDS and "\x00" not in found.reason


@pytest.mark.parametrize(
    "said, told",
    [
        ("a\x00b\x1b[31mc", "a b [31mc"), ("a\r\n\tb", "a b"), ("a\u202eb\u2066c", "a b c"), ("\ud800x", "x"), (7, ""), (None, ""),
        (["x"], ""), ("x" * 500, "x" * 500), ("a" * 400 + "b" * 101, "a" * 333 + "…" + "a" * 65 + "b" * 101),
    ],
)  # fmt: skip
def test_messages_become_one_printable_line(said, told):
    assert words(said) == told
    told.encode()


@pytest.mark.parametrize("said, told", [(3, 3), (-1, -1), (True, None), (1 << 31, None), ("3", None), (2.5, None)])
def test_a_number_fits_in_a_column(said, told):
    assert whole(said) == told
