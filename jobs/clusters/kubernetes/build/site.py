"""A cluster's settings as they apply to jobs: addresses, resources and names. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from queues.shape import ReplicaShape


@dataclass(frozen=True)
class Site:
    """The properties of a cluster rather than of a job: its OPTIONS, read and checked (`options.read`)."""

    namespace: str
    control_url: str
    shape: ReplicaShape  # of every replica, as far as its job does not say otherwise
    control_ca: str = ""  # PEM
    job_claim: str = ""  # an existing ReadWriteMany claim; each job has a folder of its own in it
    job_claim_path: str = "jobs"
    claims: Mapping[str, str] = field(default_factory=dict)  # "team/name" or "name" to an existing claim
    devices: Mapping[str, str] = field(
        default_factory=lambda: {"gpu": "nvidia.com/gpu"}
    )  # a queue's resource name to a Kubernetes resource
    user: int = 1000
    state_limit: str = "20Gi"  # code, spool and home
    tmp_limit: str = "20Gi"
    more_nodes: bool = False  # whether an autoscaler adds nodes: the sizes of the present ones then prove nothing
    network_policy: bool = False  # one per attempt: its pods may talk to each other, and to few others
    team_role: str = "muster-jobs-team"  # the ClusterRole that is bound in namespaces which Muster makes for teams
    reader_account: str = "muster-reader"  # a service account that may read pods, of roles that look for them
    egress: tuple[str, ...] = ()  # further networks that pods may reach under such a policy: ["10.0.0.0/8"]
    egress_allowed: tuple[str, ...] = ()  # networks that templates of queues may add to these, or "internet"
    node_lost_seconds: int = 30  # how long a node may be not ready before its pods are given up
