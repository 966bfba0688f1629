"""Names and labels of what Muster creates in a cluster, and how to read them back. No other module knows them. Pure.

Labels select, but prove nothing: anyone who may create pods can set ours on them. Ownership is decided by the UID of
the owner (`pods.owner_uid`).
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.core.plan import Claim

PREFIX = "muster.dev/"
RUN, ATTEMPT, ROLE, INDEX = (PREFIX + name for name in ("run", "attempt", "role", "index"))
INCARNATION = PREFIX + "incarnation"  # only if its place was given to a new replica within the attempt
OWNER = PREFIX + "owner"  # the owner's UID, so that one delete of the collection matches exactly one attempt
SEALED = PREFIX + "sealed"  # on a Service: the attempt of this name is closed for good
VOLUME = PREFIX + "volume"  # on a claim: the team's name for it
TEAM = PREFIX + "team"
# On the pod of a keeper: what it was told, as a digest. It has no run, so that no watch of replicas sees it.
KEEPER = PREFIX + "keeper"
# On the pods of a cluster's check: which check, and which of its pods. They have no run either.
CHECK, PART = PREFIX + "check", PREFIX + "check-part"
AGENT = PREFIX + "agent"  # on the agent's ConfigMap: its hash

# For people: the job's name, and who submitted it, as far as labels take it.
JOB, USER = PREFIX + "job", PREFIX + "user"
# Labels by which people, and programs that only look, find the pods of a job in other systems. None is one by which a
# controller adopts or deletes pods: `operator-name` of Kubeflow's above all.
_ELSEWHERE = ("torchrun.ai/job-name", "torchrun-job-name", "kubetorch.com/service", "training.kubeflow.org/job-name")
_TYPE, _NUMBER = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"

# What others set: a StatefulSet on its pods, and Monarch's operator on those of a mesh.
POD_INDEX, MESH = "apps.kubernetes.io/pod-index", "monarch.pytorch.org/mesh-name"

OURS = RUN  # a selector: every object with a run
_RUN = re.compile(r"^[0-9]{1,18}(-[a-z0-9]{1,20})?\Z")
_ROLE = re.compile(r"^[a-z]([a-z0-9-]{0,18}[a-z0-9])?\Z")
_POD = re.compile(r"^([0-9]{1,18}(?:-[a-z0-9]{1,20})?)-([0-9]{1,7})-[a-z][a-z0-9-]{0,19}-[0-9]{1,7}(?:-r[0-9]{1,3})?\Z")
_COUNT = re.compile(r"^(0|[1-9][0-9]{0,6})\Z")


@dataclass(frozen=True)
class ReplicaLabels:
    """Which replica of which attempt an object claims to be."""

    run: str
    attempt: int
    role: str
    index: int
    incarnation: int = 0


def service(run: str, attempt: int) -> str:
    """Return the name of the attempt's owner and subdomain.

    A Service's name must begin with a letter (RFC 1035), which a run does not.
    """
    return f"m-{run}-{attempt}"


def keeper(claim: str) -> str:
    """Return the name of the pod that looks after a claim: it is the lock, by which a claim has one at a time."""
    return f"muster-keeper-{hashlib.sha256(claim.encode()).hexdigest()[:16]}"


def check(uid: str, part: str) -> str:
    """Return the name of a pod of a cluster's check."""
    return f"muster-check-{uid}-{part}"


def headless(job: str) -> str:
    """Return the name of the headless Service that a job may ask for, as Kubetorch and others name theirs."""
    return f"{job}-headless"


def secret(run: str, attempt: int, *, owner: str, replica: str = "") -> str:
    """Return a Secret's name with part of the owner's UID: an existing one is then surely ours, and need not be read.

    `replica` is the rest of the name of a replacement pod, whose Secret is created later than the attempt's.
    """
    return f"{service(run, attempt)}-{owner[:8]}" + (f"-{replica}" if replica else "")


def of_claim(claim: Claim) -> dict[str, str]:
    """Return the labels of a claim: whose it is, and for a job's own also the names by which people look for it."""
    found = {VOLUME: claim.volume, TEAM: claim.team}
    return {**found, RUN: claim.run, JOB: claim.job, **dict.fromkeys(_ELSEWHERE, claim.job)} if claim.run else found


def pod(run: str, attempt: int, role: str, index: int, incarnation: int = 0) -> str:
    """Return a pod's name, also its host name. A replacement has a name of its own, so the two cannot be confused."""
    return f"{run}-{attempt}-{role}-{index}" + (f"-r{incarnation}" if incarnation else "")


def host(run: str, attempt: int, role: str, index: int, incarnation: int = 0, *, namespace: str) -> str:
    """Return the DNS name under which other replicas reach it; the resolver's search list adds the cluster's domain."""
    return f"{pod(run, attempt, role, index, incarnation)}.{service(run, attempt)}.{namespace}.svc"


def mesh_pod(mesh: str, index: int) -> str:
    """Return the name that a MonarchMesh gives to a pod, by way of its StatefulSet."""
    return f"{mesh}-{index}"


def mesh_domain(mesh: str, *, namespace: str) -> str:
    """Return what follows the name of a MonarchMesh's pod in its DNS name: the operator makes a Service of this name."""
    return f"{mesh}-svc.{namespace}.svc"


def of_attempt(run: str, attempt: int) -> dict[str, str]:
    return {RUN: run, ATTEMPT: str(attempt)}


def of_role(run: str, attempt: int, role: str, *, owner: str) -> dict[str, str]:
    return {**of_attempt(run, attempt), ROLE: role, OWNER: owner}


def of_replica(run: str, attempt: int, role: str, index: int, incarnation: int = 0, *, owner: str) -> dict[str, str]:
    anew = {INCARNATION: str(incarnation)} if incarnation else {}
    return {**of_role(run, attempt, role, owner=owner), INDEX: str(index), **anew}


def for_people(job: str, user: str, *, role: str, index: int | None = None) -> dict[str, str]:
    """Return labels that only serve to find pods; without an index for pods whose number Muster does not give."""
    if not job:
        return {}
    found = {JOB: job, **dict.fromkeys(_ELSEWHERE, job), _TYPE: role, USER: _as_value(user)}
    return found if index is None else {**found, _NUMBER: str(index)}


def _as_value(text: str) -> str:
    """Return what is nearest to it among the values of labels: an address keeps its letters, `ann@example.org` is ann-example.org."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:63].strip("-_.")


def selector(wanted: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))


def replica_of(labels: Any) -> ReplicaLabels | None:
    """Read labels back strictly: None for anything Muster would not have written.

    The index of a MonarchMesh's pod is the one that its StatefulSet gave it: all pods of a mesh have one template.
    """
    if not isinstance(labels, Mapping):
        return None
    run, attempt = attempt_of(labels)
    role, incarnation = labels.get(ROLE), labels.get(INCARNATION, "0")
    index = labels.get(INDEX, labels.get(POD_INDEX))
    if not run or not _is(_ROLE, role) or not _is(_COUNT, index) or not _is(_COUNT, incarnation):
        return None
    return ReplicaLabels(run, attempt, str(role), int(str(index)), int(str(incarnation)))


def attempt_of(labels: Any) -> tuple[str, int]:
    """Return (run, attempt), or ("", 0) if the labels are not ours."""
    if not isinstance(labels, Mapping):
        return "", 0
    run, attempt = labels.get(RUN), labels.get(ATTEMPT)
    if not _is(_RUN, run) or not _is(_COUNT, attempt):
        return "", 0
    return str(run), int(str(attempt))


def attempt_of_name(name: Any) -> tuple[str, int]:
    """Return (run, attempt) from a name made by `pod`, for objects that only refer to pods; ("", 0) for other names."""
    found = _POD.match(name) if isinstance(name, str) else None
    return (found[1], int(found[2])) if found else ("", 0)


def _is(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.match(value) is not None
