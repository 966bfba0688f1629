"""Which GPUs a local replica sees: one device never serves two live attempts."""

import pytest

from jobs.clusters.local.devices import NotEnough, assign, environment, of_this_machine

FOUR = ["0", "1", "2", "3"]
PAIR = {"worker-0": 1, "worker-1": 1}


def test_each_replica_gets_its_own_gpus():
    assert assign({}, "7-1", PAIR, there=FOUR) == {"worker-0": ["0"], "worker-1": ["1"]}
    assert assign({}, "7-1", {"worker-0": 2, "worker-1": 2}, there=FOUR) == {
        "worker-0": ["0", "1"],
        "worker-1": ["2", "3"],
    }


def test_gpus_of_another_attempt_are_not_assigned_again():
    held = {"7-1": {"worker-0": ["0"], "worker-1": ["2"]}}
    assert assign(held, "8-1", PAIR, there=FOUR) == {"worker-0": ["1"], "worker-1": ["3"]}


def test_a_repeated_request_of_an_attempt_keeps_its_gpus():
    held = {"7-1": {"worker-0": ["3"]}, "8-1": {"worker-0": ["0"]}}
    assert assign(held, "7-1", {"worker-0": 1}, there=FOUR) == {"worker-0": ["3"]}


def test_too_few_free_gpus_is_a_retryable_error_that_names_their_holders():
    with pytest.raises(NotEnough, match=r"needs 2 GPUs; free are 1 of 2, the others are held by 7-1") as error:
        assign({"7-1": {"worker-0": ["1"]}}, "8-1", PAIR, there=["0", "1"])
    assert not error.value.is_final


def test_more_gpus_than_the_machine_has_is_a_final_error():
    with pytest.raises(NotEnough, match="needs 2 GPUs, and this machine has 1") as error:
        assign({}, "8-1", PAIR, there=["0"])
    assert error.value.is_final


def test_a_replica_without_a_gpu_sees_none():
    assert environment([]) == {"CUDA_VISIBLE_DEVICES": ""}
    assert environment(["1", "2"]) == {"CUDA_VISIBLE_DEVICES": "1,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_gpus_of_the_machine_are_counted_unless_the_operator_names_some(tmp_path):
    assert of_this_machine({}, tmp_path) == []
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert of_this_machine({}, tmp_path) == ["0", "1", "2"]
    assert of_this_machine({"CUDA_VISIBLE_DEVICES": "2, GPU-8a"}, tmp_path) == ["2", "GPU-8a"]
    assert of_this_machine({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == []
