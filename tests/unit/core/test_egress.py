"""Networks that pods may reach: what is a network, what lies within what is allowed, and which variables need what is closed."""

import pytest

from jobs.core import egress


def problems(value) -> list[tuple[str, object]]:
    found: list = []
    egress.check(value, found)
    return [(one.field, one.value) for one in found]


@pytest.mark.parametrize("value", [[], ["10.0.0.0/8"], ["internet"], ["192.168.1.7"], ["fd00::/8", "internet"]])
def test_networks_and_the_word_are_taken(value):
    assert problems(value) == []


@pytest.mark.parametrize(
    ("value", "field"),
    [("10.0.0.0/8", "egress"), (["10.0.0.0/8"] * 51, "egress"), (["10.0.0.1/8"], "egress.0"), (["10.0.0.0/8", "x"], "egress.1"),
     ([7], "egress.0"), ([None], "egress.0"), (["Internet"], "egress.0"), (["10.0.0.0/33"], "egress.0")],
)  # fmt: skip
def test_anything_else_is_told_with_its_place(value, field):
    assert [one for one, _ in problems(value)] == [field]


@pytest.mark.parametrize(
    ("wanted", "allowed", "beyond"),
    [
        (["10.1.0.0/16"], ["10.0.0.0/8"], []),
        (["10.0.0.0/7"], ["10.0.0.0/8"], ["10.0.0.0/7"]),
        (["11.0.0.1"], ["10.0.0.0/8"], ["11.0.0.1"]),
        (["internet"], ["10.0.0.0/8"], ["internet"]),
        (["internet"], ["internet"], []),
        (["internet", "10.0.0.0/8", "8.8.8.8/32"], ["0.0.0.0/0"], []),
        (["0.0.0.0/0"], ["internet"], ["0.0.0.0/0"]),
        (["10.0.0.0/8"], ["internet"], ["10.0.0.0/8"]),
        (["fd00::/16"], ["fd00::/8"], []),
        (["fd00::/16"], ["10.0.0.0/8"], ["fd00::/16"]),
        (["10.0.0.0/8"], [], ["10.0.0.0/8"]),
    ],
)
def test_a_queue_opens_only_what_lies_within_what_is_allowed(wanted, allowed, beyond):
    assert egress.beyond(wanted, allowed) == beyond


def test_the_internet_leaves_out_private_networks_and_metadata_services():
    four, six = egress.blocks(["internet"])
    assert four["cidr"] == "0.0.0.0/0" and "169.254.0.0/16" in four["except"] and "10.0.0.0/8" in four["except"]
    assert "168.63.129.16/32" in four["except"], "a metadata service at a public address"
    assert six == {"cidr": "::/0", "except": ["64:ff9b::/96", "2002::/16", "fc00::/7", "fe80::/10"]}
    assert egress.blocks(["10.0.0.0/8", "10.0.0.0/8", "1.2.3.4"]) == [{"cidr": "10.0.0.0/8"}, {"cidr": "1.2.3.4/32"}]


@pytest.mark.parametrize(
    ("env", "entries", "closed"),
    [
        ({"HF_TOKEN": "x", "OTHER": "y"}, [], ["HF_TOKEN (the Hugging Face Hub)"]),
        ({"HF_TOKEN": "x", "HF_HUB_OFFLINE": "1"}, [], []),
        ({"WANDB_API_KEY": "x", "WANDB_MODE": "offline"}, [], []),
        ({"WANDB_API_KEY": "x", "WANDB_PROJECT": "y"}, ["10.0.0.0/8"], ["WANDB_API_KEY (Weights & Biases)"]),
        ({"AWS_ACCESS_KEY_ID": "x"}, [], ["AWS_ACCESS_KEY_ID (S3)"]),
        ({"AWS_ACCESS_KEY_ID": "x"}, ["10.0.0.0/8"], []),
        ({"HF_TOKEN": "x"}, ["internet"], []),
        ({"HF_TOKEN": "x"}, ["0.0.0.0/0"], []),
        ({"PATH": "x"}, [], []),
    ],
)
def test_variables_that_call_what_is_closed_are_named_once_each(env, entries, closed):
    assert egress.closed(env, entries) == closed
