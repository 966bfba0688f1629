"""A local job inherits from the operator's shell the variables that control training, and no secrets."""

import pytest

from jobs.clusters.replica_file import child_env


@pytest.mark.parametrize(
    "name", ["NCCL_DEBUG", "NCCL_IB_PKEY", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LC_ALL", "PATH"]
)
def test_variables_that_control_training_are_inherited(name):
    assert child_env({name: "x"}) == {name: "x"}


@pytest.mark.parametrize(
    "name",
    ["NVIDIA_API_KEY", "CUDA_DB_PASSWORD", "TORCH_HUB_TOKEN", "LC_SECRET", "NCCL_TOKEN", "AWS_SECRET_ACCESS_KEY"],
)
def test_a_secret_is_not_inherited_unless_the_operator_names_it(name):
    assert child_env({name: "x"}) == {}
    assert child_env({name: "x"}, [name]) == {name: "x"}
    assert child_env({name: "x"}, [name.partition("_")[0] + "_*"]) == {name: "x"}
