"""A cluster's settings as they apply to jobs: addresses, resources and names. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Site:
    """The properties of a cluster rather than of a job: its OPTIONS, read and checked (`options.read`)."""

    namespace: str
    image: str
    control_url: str
    control_ca: str = ""  # PEM
    job_claim: str = ""  # an existing ReadWriteMany claim; each job has a folder of its own in it
    job_claim_path: str = "jobs"
    claims: Mapping[str, str] = field(default_factory=dict)  # "team/name" or "name" to an existing claim
    devices: Mapping[str, str] = field(
        default_factory=lambda: {"gpu": "nvidia.com/gpu"}
    )  # a queue's resource name to a Kubernetes resource
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
    more_nodes: bool = False  # whether an autoscaler adds nodes: the sizes of the present ones then prove nothing
    network_policy: bool = False  # one per attempt: its pods may talk to each other, and to few others
    reader_account: str = "muster-reader"  # a service account that may read pods, of roles that look for them
    egress: tuple[str, ...] = ()  # further networks that pods may reach under such a policy: ["10.0.0.0/8"]
    node_lost_seconds: int = 30  # how long a node may be not ready before its pods are given up
