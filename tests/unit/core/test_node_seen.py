"""What is remembered of a node that changed between two looks."""

from dataclasses import replace

import pytest

from jobs.core.node_seen import MOST_WORDS, ChangeKind, NodeChange, NodeSeen, changes

NODE = NodeSeen("n1", devices={"nvidia.com/gpu": 8}, taints=("gpu=true:NoSchedule",), labels={"a": "b"}, others=2)


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (None, {}, [("appeared", "8 nvidia.com/gpu")]),
        (None, {"devices": {}, "silence": "starts"}, [("appeared", "no GPUs"), ("not_ready", "starts")]),
        ({}, {}, []),
        ({}, {"silence": "kubelet stopped"}, [("not_ready", "kubelet stopped")]),
        ({"silence": "kubelet stopped"}, {"silence": "no network"}, []),  # it says otherwise why, and is still silent
        ({"silence": "kubelet stopped"}, {}, [("ready", "")]),
        ({}, {"is_cordoned": True}, [("cordoned", "")]),
        ({"is_cordoned": True}, {}, [("uncordoned", "")]),
        ({}, {"devices": {"nvidia.com/gpu": 7}}, [("devices", "7 nvidia.com/gpu; before: 8 nvidia.com/gpu")]),
        ({}, {"troubles": ("DiskPressure",)}, [("trouble", "DiskPressure")]),
        ({"troubles": ("DiskPressure",)}, {"troubles": ("PIDPressure",)}, [("trouble", "PIDPressure"), ("recovered", "DiskPressure")]),
        ({}, {"taints": ()}, [("untainted", "gpu=true:NoSchedule")]),
        ({"taints": ()}, {}, [("tainted", "gpu=true:NoSchedule")]),
        ({}, {"labels": {}, "others": 5, "product": "H100"}, []),
    ],
)  # fmt: skip
def test_changes_of_a_node(before, now, found):
    old = None if before is None else replace(NODE, **before)
    assert changes(old, replace(NODE, **now)) == [NodeChange(ChangeKind(kind), words) for kind, words in found]


def test_words_are_bounded():
    (change,) = changes(NODE, replace(NODE, silence="x" * 5000))
    assert len(change.words) == MOST_WORDS
