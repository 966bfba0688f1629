"""Which node a verdict blames: broken hardware, a lost node, and NCCL that fails at its own end on one of several nodes."""

import pytest

from jobs.analysis import blame
from jobs.analysis.judging import AttemptFacts, RankFacts, ReplicaFacts, judge
from jobs.analysis.last_words import LastOutput
from jobs.core.verdict import ReplicaState

FRAMES = ("Traceback (most recent call last):", '  File "train.py", line 9, in <module>', "    step()")
NO_DEVICE = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1\nncclInternalError: Internal check failed.\nLast error:\nNET/IB : No device found."
REMOTE = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1\nncclRemoteError: A call failed possibly due to a network error.\nLast error:\nsocketProgress: Connection closed by remote peer"
ERROR_12 = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1\nncclRemoteError: A call failed.\nLast error:\nNET/IB: Got completion from peer 10.0.0.1 with status=12 opcode=0 len=0 vendor err 129 (Send)"
XID = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


def rank(number: int, words: str) -> RankFacts:
    """A failed rank; each replica has two."""
    said = LastOutput((*FRAMES, *words.split("\n")), (*FRAMES, *words.split("\n")))
    return RankFacts(number, f"worker-{number // 2}", "failed", exit_code=1, output=said)


def replicas(*nodes: str) -> tuple[ReplicaFacts, ...]:
    return tuple(ReplicaFacts(f"worker-{index}", "failed", exit_code=1, node=node) for index, node in enumerate(nodes))


def blamed(facts: AttemptFacts) -> str:
    found = judge(facts)
    assert found is not None
    return blame.node_of(found, facts)


@pytest.mark.parametrize(
    ("ranks", "nodes", "node"),
    [
        ((rank(3, XID), rank(0, REMOTE)), ("gpu-1", "gpu-2"), "gpu-2"),
        ((rank(2, NO_DEVICE), rank(0, REMOTE)), ("gpu-1", "gpu-2"), "gpu-2"),
        ((rank(0, REMOTE), rank(2, NO_DEVICE), rank(3, NO_DEVICE)), ("gpu-1", "gpu-2"), "gpu-2"),
        ((rank(0, NO_DEVICE), rank(2, NO_DEVICE)), ("gpu-1", "gpu-2"), ""),  # a fault of the image, or of all nodes
        ((rank(0, NO_DEVICE),), ("gpu-1", "gpu-1"), ""),  # nothing to compare it with
        ((rank(0, ERROR_12), rank(2, REMOTE)), ("gpu-1", "gpu-2"), ""),  # the healthy end of a link prints it, too
        ((rank(0, REMOTE), rank(2, REMOTE)), ("gpu-1", "gpu-2"), ""),
        ((rank(2, "ValueError: label 17 is outside 0..9"),), ("gpu-1", "gpu-2"), ""),
        ((rank(3, XID),), ("", ""), ""),  # which node it was, the cluster has not said
    ],
)
def test_a_node_is_blamed_only_where_the_failure_is_its_own(ranks, nodes, node):
    assert blamed(AttemptFacts("failed", "failed", ranks=ranks, replicas=replicas(*nodes))) == node


def test_a_lost_node_is_blamed():
    lost = ReplicaFacts("worker-1", ReplicaState.LOST, "its node gpu-2 does not answer", node="gpu-2")
    assert blamed(AttemptFacts("failed", "failed", replicas=(*replicas("gpu-1"), lost))) == "gpu-2"


def test_no_verdict_blames_nobody():
    assert blame.node_of(None, AttemptFacts()) == ""
