"""Messages that torch, JAX and Ray raise, and the hint that is shown below each."""

import pytest

from jobs.analysis import hints


@pytest.mark.parametrize(
    ("headline", "words"),
    [
        (
            "rank 0: ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set",
            "Set distributed=1",
        ),
        ("rank 0: KeyError: 'LOCAL_RANK'", "Set distributed=1"),
        ("rank 1: ValueError: coordinator_address should be defined.", "Set framework=plain"),
        (
            "driver-0: ValueError: When connecting to an existing cluster, num_cpus and num_gpus must not be provided.",
            "call ray.init() without num_cpus",
        ),
        ("rank 0: ValueError: When connecting to an existing cluster, resources must not be provided.", "ray.init()"),
    ],
)
def test_a_message_has_its_hint(headline, words):
    assert words in hints.of(headline)


@pytest.mark.parametrize("headline", ["", "rank 0: KeyError: 'RANKS'", "rank 0: ValueError: label 17 is outside 0..9"])
def test_other_messages_have_none(headline):
    assert hints.of(headline) == ""
