"""Two real processes of JAX, each the command of a replica, meet by `jax.distributed.initialize()` without arguments."""

import sys

import pytest

from embedded.ports import free_port
from tests.process.agent.bench import Bench
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.full
TRAIN = """
import jax, jax.numpy as jnp
from jax.experimental import multihost_utils
jax.distributed.initialize()
mine = jnp.array([jax.process_index() + 1])
print("process", jax.process_index(), "of", jax.process_count(), "sum", int(multihost_utils.process_allgather(mine).sum()))
"""


def test_they_need_no_argument(bench: Bench) -> None:
    port = free_port()
    env = {
        "JAX_PLATFORMS": "cpu", "JAX_NUM_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        # JAX would ask the API of a cluster that it seems to be in.
        "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1",
    }  # fmt: skip
    agents = []
    for index in (0, 1):
        folder = bench.replica(
            [sys.executable, "train.py"], index=index, files={"train.py": TRAIN}, framework="plain", is_rank=True,
            env={**env, "JAX_PROCESS_ID": str(index)},
        )  # fmt: skip
        agents.append(bench.start(folder))
    for index, agent in enumerate(agents):
        agent.wait(PATIENCE_SECONDS)
        texts = bench.control_plane.of(f"worker-{index}").texts(index)
        assert bench.status(index)["exit_code"] == 0, texts
        assert f"process {index} of 2 sum 3" in texts


def test_a_single_process_gets_no_hook(bench: Bench) -> None:
    script = "import sys; print('hooked' if 'sitecustomize' in sys.modules and '/hook/' in sys.modules['sitecustomize'].__file__ else 'plain')"
    for count, expected in (("1", "plain"), ("2", "hooked")):
        received = bench.run(
            [sys.executable, "-c", script], index=int(count), framework="plain", is_rank=True,
            env={"JAX_NUM_PROCESSES": count, "JAX_PROCESS_ID": "0", "JAX_COORDINATOR_ADDRESS": "127.0.0.1:1"},
        )  # fmt: skip
        assert received.texts(int(count)) == [expected]
