"""Layers of a pod's shape and their sum; amounts as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues import quantities
from queues.shape import ReplicaShape, conflicts, merge, of_resources

KEYS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=2)
SHAPES = st.builds(
    ReplicaShape, image=st.sampled_from(["", "a", "b"]), requests=KEYS, limits=KEYS, node_selector=KEYS, labels=KEYS,
    tolerations=st.lists(st.sampled_from([{"key": "a"}, {"key": "b"}]), max_size=2, unique_by=str).map(tuple),
)  # fmt: skip


def test_later_layers_replace_texts_and_single_entries_and_add_to_lists():
    cluster = ReplicaShape(
        image="base:1", requests={"cpu": "4", "memory": "16Gi"}, limits={"memory": "16Gi"}, labels={"team": "all"},
        tolerations=({"key": "gpu"},), scheduler="gang",
    )  # fmt: skip
    job = ReplicaShape(
        image="mine:2", labels={"team": "nlp", "run": "a"}, tolerations=({"key": "gpu"}, {"key": "spot"})
    )
    found = merge(cluster, job, of_resources(cpu="8"))
    assert (found.image, found.scheduler) == ("mine:2", "gang")
    assert (found.requests, found.limits) == ({"cpu": "8", "memory": "16Gi"}, {"memory": "16Gi", "cpu": "8"})
    assert found.labels == {"team": "nlp", "run": "a"} and found.tolerations == ({"key": "gpu"}, {"key": "spot"})


def test_a_node_selector_is_narrowed_and_never_left():
    below, above = ReplicaShape(node_selector={"pool": "a"}), ReplicaShape(node_selector={"pool": "b", "zone": "z"})
    assert merge(below, above).node_selector == {"pool": "a", "zone": "z"}
    assert conflicts(below, above) == {"pool": ("b", "a")}
    assert conflicts(below, below) == {}


@given(SHAPES, SHAPES, SHAPES)
def test_layers_can_be_summed_in_any_grouping(one, two, three):
    assert merge(merge(one, two), three) == merge(one, merge(two, three)) == merge(one, two, three)


@given(SHAPES)
def test_an_empty_layer_changes_nothing(shape):
    assert merge(ReplicaShape(), shape) == merge(shape, ReplicaShape()) == shape


def test_a_node_needs_the_request_and_without_one_the_limit():
    assert ReplicaShape(requests={"cpu": "1"}, limits={"cpu": "2", "memory": "1Gi"}).needs == {
        "cpu": "1",
        "memory": "1Gi",
    }


def test_quantities_are_read_in_kubernetes_notation():
    assert [quantities.read(text) for text in ("1", "500m", "2Ki", "1k", "1.5G", ".5", "nonsense", "-1")] == [
        1, 0.5, 2048, 1000, 1.5e9, 0.5, 0, 0,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("8", "cpu", "8"), (8, "cpu", "8"), (0.5, "cpu", "0.5"), ("0.5", "cpu", "0.5"), ("500m", "cpu", "500m"), (1.0, "cpu", "1"),
        (" 32Gi ", "memory", "32Gi"), ("1.5Ti", "memory", "1.5Ti"), ("512M", "memory", "512M"),
    ],
)  # fmt: skip
def test_amounts_are_taken(value, kind, text):
    assert quantities.parse(value, kind) == text


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ("512GB", "memory", "is not understood; write 512Gi"),
        ("8 Gi", "memory", "is not understood; write 8Gi"),
        ("8gi", "memory", "is not understood; write 8Gi"),
        ("8 GiB", "memory", "is not understood; write 8Gi"),
        ("64", "memory", "is 64 bytes; write 64Gi"),
        (64, "memory", "is 64 bytes; write 64Gi"),
        ("100m", "memory", "must be from 1Mi to 1Ei"),
        ("0", "memory", "must be above 0"),
        ("-8Gi", "memory", "is not understood; use a Kubernetes quantity such as 32Gi"),
        ("NaN", "memory", "is not understood"),
        (float("nan"), "memory", "is not understood"),
        (float("inf"), "cpu", "is not understood"),
        (True, "cpu", "is not understood"),
        (None, "cpu", "is not understood"),
        (["8"], "cpu", "is not understood"),
        (-1, "cpu", "is not understood"),
        (0, "cpu", "must be above 0"),
        ("8 cores", "cpu", "is not understood; write 8"),
        ("8Gi", "cpu", "is no number of cores; use a Kubernetes quantity such as 8 or 500m"),
        ("0.0001", "cpu", "must be from 1m to 100000 cores"),
        ("1e9", "cpu", "is not understood"),
        ("9" * 4000, "memory", "is not understood"),
    ],
)
def test_other_amounts_are_refused_with_what_to_write(value, kind, words):
    with pytest.raises(ValueError, match="^" + words.replace("(", r"\(")):
        quantities.parse(value, kind)
