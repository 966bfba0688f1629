"""What a pod mounts: the agent and its configuration, folders of its own, the team's volumes and secrets. Pure."""

from collections.abc import Mapping
from typing import Any

from common.errors import Refused
from jobs.core.plan import Plan, StartFrom
from jobs.core.pod_template import CHECKPOINTS, WORKSPACE
from queues.shape import ReplicaShape

from .site import Site

Manifest = dict[str, Any]
FROM = "/muster/from"  # what an earlier job kept
KEPT = "checkpoints"  # its folder there, in a claim that all jobs share
AGENT, CONFIG, STATE, SHARED, VOLUMES, SECRETS = (
    f"/muster/{name}" for name in ("agent", "told", "state", "job", "volumes", "secrets")
)


def mounts(plan: Plan, site: Site) -> list[Manifest]:
    names = _volume_names(plan, site)
    mounts: list[Manifest] = [
        {"name": "agent", "mountPath": AGENT, "readOnly": True},
        {"name": "told", "mountPath": CONFIG, "readOnly": True},
        {"name": "state", "mountPath": STATE},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - DataLoader workers hand over batches here
    ]
    if WORKSPACE in plan.job_claims:
        mounts.append({"name": WORKSPACE, "mountPath": SHARED})
    elif site.job_claim:
        path = "/".join(part for part in (site.job_claim_path.strip("/"), plan.run) if part)
        mounts.append({"name": "job", "mountPath": SHARED, "subPath": path})
    if start := plan.start_from:
        mounts.append({"name": names["from"], "mountPath": FROM, "readOnly": True, **_start_path(start, site)})
    if CHECKPOINTS in plan.job_claims:
        mounts.append({"name": CHECKPOINTS, "mountPath": f"{SHARED}/checkpoints"})
    for number, (name, path) in enumerate(plan.volumes.items()):
        read_only = {"readOnly": True} if name in plan.read_only else {}
        mounts.append({"name": names[f"volume-{number}"], "mountPath": path or f"{VOLUMES}/{name}", **read_only})
    for number, (name, one) in enumerate(sorted(plan.secret_files.items())):
        path = one.path or f"{SECRETS}/{name}"
        mounts.append({"name": f"secret-{number}", "mountPath": path, "readOnly": True})
    return mounts


def start_folder(plan: Plan) -> str:
    """Return where a pod finds the checkpoints of an earlier job."""
    return FROM if plan.start_from is None or plan.start_from.claim else f"{FROM}/{KEPT}"


def _start_path(start: StartFrom, site: Site) -> Manifest:
    """Return what is mounted of the other job's claim. Raises Refused where nothing of it was kept.

    Of a claim that all jobs share it is that job's whole folder: the kubelet follows links in the path, and the folder
    for checkpoints is one that the job could have replaced by a link to those of others.
    """
    if start.claim:
        return {}
    if not site.job_claim:
        words = "its cluster has no JOB_CLAIM, and its queue gave it no storage for checkpoints"
        raise Refused(f"nothing was kept of run {start.run}, from which it is to begin: {words}")
    return {"subPath": "/".join(part for part in (site.job_claim_path.strip("/"), start.run) if part)}


def volumes(plan: Plan, shape: ReplicaShape, *, site: Site, config: Manifest, agent: str) -> list[Manifest]:
    shm: Manifest = {"medium": "Memory"}
    if shape.shm:
        shm["sizeLimit"] = shape.shm
    volumes: list[Manifest] = [
        {"name": "agent", "configMap": {"name": agent, "defaultMode": 0o555}},
        {"name": "told", "secret": config},
        {"name": "state", "emptyDir": {"sizeLimit": site.state_limit}},
        {"name": "tmp", "emptyDir": {"sizeLimit": site.tmp_limit}},
        {"name": "shm", "emptyDir": shm},
    ]
    first: dict[str, str] = {}
    for name, claim in _claims(plan, site).items():
        if first.setdefault(claim, name) == name:
            volumes.append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
    for number, (_, keys) in enumerate(secret_items(plan)):
        items = [{"key": key, "path": file} for file, key in keys.items()]
        of_files = {"secretName": config["secretName"], "defaultMode": 0o440, "items": items}
        volumes.append({"name": f"secret-{number}", "secret": of_files})
    return [*volumes, *map(dict, shape.volumes)]


def _claims(plan: Plan, site: Site) -> dict[str, str]:
    """Return what is mounted of claims, by the names of volumes, with the claim of each. Raises Refused."""
    found = {kind: claim.name for kind, claim in sorted(plan.job_claims.items())}
    if site.job_claim and WORKSPACE not in plan.job_claims:
        found["job"] = site.job_claim
    if start := plan.start_from:
        found["from"] = start.claim or site.job_claim
    return found | {f"volume-{number}": _claim(plan, name, site) for number, name in enumerate(plan.volumes)}


def _volume_names(plan: Plan, site: Site) -> dict[str, str]:
    """Return by each name of a volume that of the pod's volume with its claim: the first one of that claim.

    The kubelet mounts a claim once for each pod: of two volumes with the same claim it waits for one without an end.
    """
    first: dict[str, str] = {}
    return {name: first.setdefault(claim, name) for name, claim in _claims(plan, site).items()}


def secret_items(plan: Plan) -> list[tuple[Mapping[str, str], dict[str, str]]]:
    """Return for each of the team's secrets with files: those, and the key of each file in the attempt's Secret."""
    return [
        (one.files, {file: f"file-{number}-{place}" for place, file in enumerate(sorted(one.files))})
        for number, (_, one) in enumerate(sorted(plan.secret_files.items()))
    ]


def _claim(plan: Plan, name: str, site: Site) -> str:
    if name in plan.claims:
        return plan.claims[name].name
    claim = site.claims.get(f"{plan.team}/{name}") or site.claims.get(name)
    if not claim:
        theirs = sorted(one for one in site.claims if "/" not in one or one.startswith(f"{plan.team}/"))
        known = ", ".join(theirs) or "none"
        raise Refused(f"volume {name}: team {plan.team} has none of this name on this cluster; its CLAIMS are {known}")
    return claim
