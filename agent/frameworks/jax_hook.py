"""Runs at the start of each Python of a plain job with several processes: `jax.distributed.initialize()` needs no argument.

JAX asks each `ClusterEnv` that it knows whether it is there (jax/_src/clusters/cluster.py); any subclass is one, so Muster
adds itself, in front of Kubernetes', which would look for a Job of its own in the cluster's API.
"""

from __future__ import annotations

import os
from typing import Any, Optional

from . import on_import

COUNT, RANK, COORDINATOR = "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS"


def setup() -> None:
    on_import.change({"jax._src.clusters": _add})


def _add(module: Any) -> None:
    class Muster(module.ClusterEnv):  # type: ignore[misc,name-defined]  # known at run time only
        name = "muster"

        @classmethod
        def is_env_present(cls) -> bool:
            return all(name in os.environ for name in (COUNT, RANK, COORDINATOR))

        @classmethod
        def get_coordinator_address(
            cls, timeout_secs: Optional[int] = None, override_coordinator_port: Optional[str] = None
        ) -> str:
            host, _, port = os.environ[COORDINATOR].rpartition(":")
            return f"{host}:{override_coordinator_port or port}"

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ[COUNT])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ[RANK])

    known = module.ClusterEnv._cluster_types
    known.insert(0, known.pop(known.index(Muster)))
