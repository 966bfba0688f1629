"""A cluster as jobs find it: where it is, what it is given, what it calls things. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Site:
    """What is true of a cluster, not of a job: its OPTIONS, read and checked (`options.read`)."""

    namespace: str
    image: str
    control_url: str
    control_ca: str = ""  # PEM
    job_claim: str = ""  # an existing ReadWriteMany claim; each job has a folder of its own in it
    job_claim_path: str = "jobs"
    claims: Mapping[str, str] = field(default_factory=dict)  # "team/name" or "name" to an existing claim
    devices: Mapping[str, str] = field(
        default_factory=lambda: {"gpu": "nvidia.com/gpu"}
    )  # a queue's word to a resource
    requests: Mapping[str, str] = field(default_factory=dict)  # of each replica: {"cpu": "4", "memory": "16Gi"}
    limits: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    scheduler: str = ""
    user: int = 1000
    state_limit: str = "20Gi"  # code, spool and home
    tmp_limit: str = "20Gi"
    memory_limit: str = ""  # of /dev/shm; it counts as the replica's memory
    more_nodes: bool = False  # that an autoscaler adds: the sizes of those that are there say nothing
    network_policy: bool = False  # one per attempt: its pods talk to each other, and to few others
    egress: tuple[str, ...] = ()  # networks that pods may reach besides, where there is such a policy: ["10.0.0.0/8"]
    node_lost_seconds: int = 30  # that a node may be not ready, before what ran there is given up
