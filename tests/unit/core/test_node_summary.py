"""The nodes of a cluster in numbers: what is free, how much of it on one node, and what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.node_summary import Group, Held, NodeFacts, summary


def node(number: int = 1, gpus: int = 8, *, slots: int = 0, **more) -> NodeFacts:
    held = (Held(7, slots),) if slots else ()
    return NodeFacts(number, f"n{number}", gpus, **{"held": held, "others": 0, **more})


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ([node(1, slots=6), node(2, slots=6), node(3, slots=6), node(4, slots=6)], "8 free, no node has more than 2"),
        ([node(1), node(2, slots=8)], "8 free, all on one node"),
        ([node(1, slots=7)], "1 free, on one node"),
        ([node(1, slots=8)], "None free"),
        ([], "None free"),
        ([node(1, slots=4, others=4), node(2, slots=4, others=3)], "1 free, on one node"),
        ([node(1, slots=4, others=None), node(2, others=None)], "At most 12 free, no node has more than 8"),
        ([node(1, others=None, slots=7)], "At most 1 free, on one node"),
        ([node(1, silence="gone quiet"), node(2, is_cordoned=True), node(3, is_excluded=True)], "None free"),
        ([node(1, is_gone=True), node(2, slots=1)], "7 free, all on one node"),
    ],
)
def test_the_sentence_says_what_is_free_and_how_much_of_it_on_one_node(nodes, sentence):
    assert summary(nodes).sentence == sentence


def test_gpus_of_a_node_that_takes_no_pods_are_out_and_not_free():
    found = summary([node(1, slots=2, is_cordoned=True), node(2, others=3, silence="x"), node(3, slots=8)])
    assert (found.free, found.out, found.nodes_away, found.held) == (0, 6 + 5, 2, 10)


def test_what_others_hold_is_known_only_if_it_is_on_every_node_with_gpus():
    assert summary([node(1, others=2), node(2, gpus=0, others=None)]).others == 2
    assert summary([node(1, others=2), node(2, others=None)]).others is None


def test_idle_and_broken_gpus_are_those_of_all_jobs():
    held = (Held(1, 4, idle=3), Held(2, 4, idle=1, broken=2))
    found = summary([node(1, held=held), node(2, held=(Held(1, 8, idle=8),))])
    assert (found.idle, found.broken, found.exceptions) == (12, 2, 1)


def test_each_product_has_its_own_numbers():
    nodes = [node(1, product="H100", slots=8), node(2, product="H100", slots=3), node(3, 4, product="L4"), node(4, 0)]
    assert summary(nodes).groups == (Group("H100", 2, 16, 11, 5, 5), Group("L4", 1, 4, 0, 4, 4))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, []),
        ({"silence": "kubelet stopped"}, ["not ready"]),
        ({"silence": "kubelet stopped", "is_gone": True}, ["gone"]),
        ({"held": (Held(1, 8, broken=1),)}, ["1 GPU with Xid or ECC errors"]),
        ({"failed_jobs": 3, "is_excluded": True}, ["failed 3 jobs within a day", "excluded"]),
        ({"is_cordoned": True, "troubles": ("DiskPressure",)}, ["DiskPressure", "cordoned"]),
        ({"slots": 9}, ["9 GPUs held, and it offers 8"]),
    ],
)
def test_what_is_wrong_is_said_the_worst_first(facts, words):
    assert [said for _, said in node(**facts).exceptions] == words


facts = st.builds(
    NodeFacts, st.just(1), st.just("n"), st.integers(0, 16), silence=st.sampled_from(["", "x"]),
    is_cordoned=st.booleans(), is_excluded=st.booleans(), is_gone=st.booleans(), others=st.none() | st.integers(0, 20),
    held=st.lists(st.builds(Held, st.integers(1, 9), st.integers(1, 9)), max_size=3).map(tuple),
)  # fmt: skip


@given(st.lists(facts, max_size=8))
def test_numbers_fit_together(nodes):
    found = summary(nodes)
    assert 0 <= found.largest <= found.free <= found.gpus and found.free + found.out <= found.gpus
    assert (found.free > 0) == (found.nodes_with_free > 0) and found.nodes_with_free <= found.nodes
    assert sum(one.gpus for one in found.groups) == found.gpus and sum(one.free for one in found.groups) == found.free
