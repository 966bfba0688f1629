"""Which GPUs a local replica sees: one device never serves two attempts that live."""

import pytest

from jobs.clusters.local.devices import NotEnough, assign, environment, of_this_machine

FOUR = ["0", "1", "2", "3"]
PAIR = {"worker-0": 1, "worker-1": 1}


def test_each_replica_gets_its_own():
    assert assign({}, "7-1", PAIR, FOUR) == {"worker-0": ["0"], "worker-1": ["1"]}
    assert assign({}, "7-1", {"worker-0": 2, "worker-1": 2}, FOUR) == {"worker-0": ["0", "1"], "worker-1": ["2", "3"]}


def test_what_another_attempt_holds_is_not_given_again():
    held = {"7-1": {"worker-0": ["0"], "worker-1": ["2"]}}
    assert assign(held, "8-1", PAIR, FOUR) == {"worker-0": ["1"], "worker-1": ["3"]}


def test_an_attempt_that_is_asked_for_again_keeps_its_own():
    held = {"7-1": {"worker-0": ["3"]}, "8-1": {"worker-0": ["0"]}}
    assert assign(held, "7-1", {"worker-0": 1}, FOUR) == {"worker-0": ["3"]}


def test_too_few_free_ones_are_waited_for_and_say_who_has_them():
    with pytest.raises(NotEnough, match=r"needs 2 GPUs; free are 1 of 2, the others are held by 7-1") as error:
        assign({"7-1": {"worker-0": ["1"]}}, "8-1", PAIR, ["0", "1"])
    assert not error.value.is_final


def test_more_than_the_machine_has_is_refused():
    with pytest.raises(NotEnough, match="needs 2 GPUs, and this machine has 1") as error:
        assign({}, "8-1", PAIR, ["0"])
    assert error.value.is_final


def test_a_replica_without_a_gpu_sees_none():
    assert environment([]) == {"CUDA_VISIBLE_DEVICES": ""}
    assert environment(["1", "2"]) == {"CUDA_VISIBLE_DEVICES": "1,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_the_machines_own_are_counted_unless_the_operator_names_some(tmp_path):
    assert of_this_machine({}, tmp_path) == []
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert of_this_machine({}, tmp_path) == ["0", "1", "2"]
    assert of_this_machine({"CUDA_VISIBLE_DEVICES": "2, GPU-8a"}, tmp_path) == ["2", "GPU-8a"]
    assert of_this_machine({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == []
