"""A cluster in memory that lists many nodes, for the installation of `bench/nodes.py`."""

from typing import Any

from jobs.clusters.memory import MemoryCluster
from jobs.core.node_seen import NodeSeen


def name(number: int) -> str:
    return f"gpu-node-{number:04d}.cluster.example"


class ManyNodes(MemoryCluster):
    """`count` nodes of eight GPUs; every hundredth is cordoned."""

    def __init__(self, count: int, **more: Any) -> None:
        super().__init__(**more)
        self.listed = [
            NodeSeen(
                name(number), is_cordoned=number % 100 == 99, devices={"nvidia.com/gpu": 8}, product="NVIDIA-H100-80GB-HBM3",
                labels={"topology.kubernetes.io/zone": f"z{number % 3}"}, taints=("nvidia.com/gpu=present:NoSchedule",), others=0,
            )
            for number in range(count)
        ]  # fmt: skip
