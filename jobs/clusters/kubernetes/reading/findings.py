"""What a cluster's answers say of whether Muster can use it: version, rights, nodes, storage, operators. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from common.text import listed, nodes_listed
from jobs.clusters import Inspected
from jobs.core import storage_classes

from ..api.objects import condition, get, items
from ..build.manifests import MESH_VERSION
from ..build.site import Site

ACCOUNT = "kubectl apply -f deploy/account.yaml"
NODES = "kubectl apply -f deploy/nodes.yaml"
PLATFORM = "an administrator of the cluster"
MUSTER = "an administrator of Muster"
OLDEST = (1, 27)  # of the servers that the tests run with; older ones may work
SIDECARS = (1, 29)  # restartable init containers
SHOWN = 5


@dataclass(frozen=True)
class Right:
    """What Muster asks of the API server. `why`: what does not work without it; `cluster`: for no namespace."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    is_optional: bool = False
    is_of_cluster: bool = False

    @property
    def name(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


# As deploy/account.yaml and deploy/nodes.yaml grant them, which a test compares.
RIGHTS = (
    Right("", "pods", ("create", "get", "list", "watch", "patch", "delete", "deletecollection"), "no job can run"),
    Right("", "pods/log", ("get",), "lines of replicas whose agents cannot reach Muster are lost"),
    Right("", "services", ("create", "get", "list", "watch", "patch", "delete"), "no job can run"),
    Right("", "secrets", ("create",), "no job can run"),
    Right("", "configmaps", ("create", "get"), "no job can run"),
    Right("", "persistentvolumeclaims", ("create", "get", "patch", "delete"), "volumes of teams cannot be made, grown and deleted"),
    Right("", "events", ("list", "watch"), "why a volume is not mounted or an image not pulled is not told", is_optional=True),
    Right("networking.k8s.io", "networkpolicies", ("create",), "pods of one job can reach those of another", is_optional=True),
    Right("monarch.pytorch.org", "monarchmeshes", ("create", "get", "deletecollection"), "mesh_launcher=MonarchMesh does not work", is_optional=True),
    Right("", "nodes", ("get", "list", "watch"), "jobs that never fit are not refused, and lost nodes are noticed late", is_optional=True, is_of_cluster=True),
    Right("storage.k8s.io", "storageclasses", ("list",), "unknown storage classes are not refused", is_optional=True, is_of_cluster=True),
)  # fmt: skip


@dataclass(frozen=True)
class Wider:
    """A right outside of Muster's namespaces, which few installations need. `verb` on `resource` stands for all of it."""

    verb: str
    resource: str
    file: str
    use: str


WIDER = (
    Wider("list", "pods", "deploy/foreign-pods.yaml", "what pods of others hold of the GPUs"),
    Wider("watch", "services", "deploy/all-namespaces.yaml", "many namespaces of teams are followed with few watches"),
    Wider("create", "namespaces", "deploy/team-namespaces.yaml", "Muster makes namespaces of teams"),
)

# Groups of the API by which operators and schedulers are recognised, with the name that people know.
OPERATORS = {
    "monarch.pytorch.org": "Monarch's operator", "kubeflow.org": "Kubeflow's training operator", "trainer.kubeflow.org": "Kubeflow Trainer",
    "ray.io": "KubeRay", "kueue.x-k8s.io": "Kueue", "batch.volcano.sh": "Volcano", "scheduling.volcano.sh": "Volcano's scheduler",
    "scheduling.run.ai": "KAI scheduler", "scheduling.x-k8s.io": "coscheduling", "jobset.x-k8s.io": "JobSet",
    "leaderworkerset.x-k8s.io": "LeaderWorkerSet", "nvidia.com": "NVIDIA's GPU operator", "resource.k8s.io": "Dynamic Resource Allocation",
    "karpenter.sh": "Karpenter", "torchrun.ai": "the torchrun controller",
}  # fmt: skip
# What Muster makes for an operator, and in which version: build/manifests.py. Groups without an entry are only named.
USED = {
    "monarch.pytorch.org": ("MonarchMesh", MESH_VERSION.partition("/")[2], "mesh_launcher=MonarchMesh does not work")
}
MOST_GROUPS = 3  # whose kinds are read, one request each: those first of which Muster makes objects
SHOWN_KINDS = 8
# Labels that say that a node has GPUs, whether or not a device plug-in offers them.
_GPU_LABELS = {
    "nvidia.com/gpu.present": "nvidia.com/gpu", "feature.node.kubernetes.io/pci-10de.present": "nvidia.com/gpu",
    "feature.node.kubernetes.io/pci-0302_10de.present": "nvidia.com/gpu", "nvidia.com/gpu.product": "nvidia.com/gpu",
    "cloud.google.com/gke-accelerator": "nvidia.com/gpu", "k8s.amazonaws.com/accelerator": "nvidia.com/gpu",
    "amd.com/gpu.vram": "amd.com/gpu", "feature.node.kubernetes.io/pci-1002.present": "amd.com/gpu",
}  # fmt: skip
_PLUG_IN = {
    "nvidia.com/gpu": "NVIDIA's device plug-in or GPU operator", "amd.com/gpu": "AMD's device plug-in",
}  # fmt: skip


def of_version(body: Mapping[str, Any]) -> Inspected:
    said = str(body.get("gitVersion") or "")
    numbers = tuple(int(digits) for part in said.lstrip("v").split(".")[:2] if (digits := _digits(part)))
    if len(numbers) < 2:
        return Inspected(
            "version",
            "wrong",
            "the answer names no version: this may be no Kubernetes",
            "the address in the kubeconfig",
            MUSTER,
        )
    if numbers < OLDEST:
        words = f"Kubernetes {said}, older than what Muster is tested with ({OLDEST[0]}.{OLDEST[1]})"
        return Inspected("version", "note", words, "an upgrade of the cluster", PLATFORM)
    if numbers < SIDECARS:
        words = f"Kubernetes {said}; sidecars of a queue's template need {SIDECARS[0]}.{SIDECARS[1]}"
        return Inspected("version", "note", words, "an upgrade of the cluster", PLATFORM)
    return Inspected("version", "ok", f"Kubernetes {said}")


def _digits(part: str) -> str:
    """Return the leading digits: some distributions write "29+"."""
    return part[: len(part) - len(part.lstrip("0123456789"))]


def missing(rules: Iterable[Any], right: Right) -> tuple[str, ...]:
    """Return the verbs of a right that no rule grants for every object of its kind."""
    granted: set[str] = set()
    for rule in rules:
        groups, resources = items(get(rule, "apiGroups")), items(get(rule, "resources"))
        if (right.group in groups or "*" in groups) and (right.resource in resources or "*" in resources):
            granted |= set(map(str, items(get(rule, "verbs")))) if not items(get(rule, "resourceNames")) else set()
    return () if "*" in granted else tuple(verb for verb in right.verbs if verb not in granted)


def of_rights(lacking: Mapping[Right, tuple[str, ...]], site: Site) -> Iterator[Inspected]:
    """Yield one line for each right that the account lacks, or one that says that it has all."""
    for right, verbs in lacking.items():
        is_needed = not right.is_optional or (right.resource == "networkpolicies" and site.network_policy)
        where = "" if right.is_of_cluster else f" in namespace {site.namespace}"
        words = f"the account may not {', '.join(verbs)} {right.name}{where}: {right.why}"
        remedy = NODES if right.is_of_cluster else ACCOUNT
        yield Inspected("rights", "wrong" if is_needed else "note", words, remedy, PLATFORM)
    if not lacking:
        yield Inspected("rights", "ok", "the account has every right that Muster uses")


def of_wider(has: Mapping[Wider, bool]) -> Inspected:
    """Say which of the rights that hold for the whole cluster were granted, and which could be."""
    granted = [f"{one.use} ({one.file})" for one in WIDER if has.get(one)]
    others = [f"{one.use} ({one.file})" for one in WIDER if not has.get(one)]
    said = [f"granted: {', '.join(granted)}"] if granted else []
    said += [f"not granted, and not needed: {', '.join(others)}"] if others else []
    return Inspected("wider rights", "ok", "; ".join(said))


def of_nodes(nodes: Iterable[Any], site: Site) -> Iterator[Inspected]:
    """Yield what the nodes offer, which GPUs no plug-in offers, and which nodes take no pods now."""
    known = list(nodes)
    if not known:
        yield Inspected(
            "nodes", "wrong", "the cluster has no nodes", "nodes, or an autoscaler with MORE_NODES", PLATFORM
        )
        return
    devices: dict[str, int] = {}
    idle: dict[str, list[str]] = {}
    away: list[str] = []
    for node in known:
        name, amounts = str(get(node, "metadata", "name")), get(node, "status", "allocatable") or {}
        offers = {key: _count(value) for key, value in amounts.items() if _is_device(key)}
        for key, count in offers.items():
            devices[key] = devices.get(key, 0) + count
        labels = get(node, "metadata", "labels") or {}
        lacks = {resource for label, resource in _GPU_LABELS.items() if labels.get(label) not in (None, "", "false")}
        for resource in lacks:
            if not any(count for key, count in offers.items() if key.partition("/")[0] == resource.partition("/")[0]):
                idle.setdefault(resource, []).append(name)
        if get(node, "spec", "unschedulable") or get(condition(get(node, "status"), "Ready"), "status") != "True":
            away.append(name)
    offered = ", ".join(f"{count} {key}" for key, count in sorted(devices.items()) if count) or "no GPUs"
    yield Inspected("nodes", "ok", f"{len(known)} node{'s' if len(known) != 1 else ''} with {offered}")
    for resource, names in sorted(idle.items()):
        its, has = ("its label", "has") if len(names) == 1 else ("their labels", "have")
        words = f"{nodes_listed(names, SHOWN)} {has} GPUs by {its}, and no plug-in offers {resource} there"
        yield Inspected("nodes", "wrong", words, f"{_PLUG_IN[resource]} on these nodes", PLATFORM)
    for queue_resource, resource in sorted(site.devices.items()):
        if not devices.get(resource):
            words = f"no node offers {resource}, which queues of {queue_resource} ask for"
            yield Inspected(
                "nodes", "note", words, "OPTIONS.DEVICES of the cluster, or resource in a queue's template", MUSTER
            )
    if away:
        words = (
            f"{nodes_listed(away, SHOWN)} {'takes' if len(away) == 1 else 'take'} no new pods: cordoned, or not ready"
        )
        yield Inspected("nodes", "note", words, f"kubectl describe node {away[0]}", PLATFORM)


def _is_device(key: str) -> bool:
    domain, _, name = key.partition("/")
    return bool(name) and ("gpu" in name or name.startswith("mig-") or domain in ("nvidia.com", "amd.com", "habana.ai"))


def _count(value: Any) -> int:
    return int(value) if str(value).isdecimal() else 0


def of_storage(known: Mapping[str, str] | None) -> Inspected:
    """Return which classes several nodes can mount. `known` as in `storage_classes.complaint`."""
    remedy = "a class of a shared file system, such as NFS, CephFS, EFS or Filestore"
    if known is None:
        return Inspected("storage", "note", "storage classes cannot be read", NODES, PLATFORM)
    names = sorted(name for name in known if name != storage_classes.DEFAULT)
    shared = [name for name in names if storage_classes.serves_several(known[name])]
    unknown = [name for name in names if storage_classes.serves_several(known[name]) is None]
    if shared:
        return Inspected("storage", "ok", f"several nodes can mount volumes of {', '.join(shared)}")
    if unknown:
        words = f"whether several nodes can mount volumes of {', '.join(unknown)} is not known here"
        return Inspected("storage", "note", words, remedy, PLATFORM)
    words = (
        f"no class serves several nodes ({', '.join(names) or 'there is none'}): jobs of several nodes share no volume"
    )
    return Inspected("storage", "note", words, remedy, PLATFORM)


def operators(body: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the versions that the server serves of the groups of operators and schedulers, its preferred one first."""
    found: dict[str, list[str]] = {}
    for group in items(get(dict(body), "groups")):
        name, preferred = str(get(group, "name")), str(get(group, "preferredVersion", "version"))
        if name in OPERATORS:
            versions = [str(get(one, "version")) for one in items(get(group, "versions"))]
            found[name] = sorted(versions, key=lambda one: one != preferred)
    return found


def to_read(groups: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the groups whose kinds are read, each with the version: the one that Muster uses, if it is served."""
    chosen = [name for name in sorted(groups, key=lambda one: one not in USED) if groups[name]][:MOST_GROUPS]
    return {
        name: USED[name][1] if name in USED and USED[name][1] in groups[name] else groups[name][0] for name in chosen
    }


def kinds(body: Mapping[str, Any]) -> list[str]:
    """Return the kinds of a group's version, of the answer to GET apis/GROUP/VERSION; not those of subresources."""
    resources = items(get(dict(body), "resources"))
    return sorted({str(get(one, "kind")) for one in resources if "/" not in str(get(one, "name"))})


def of_operators(groups: Mapping[str, list[str]], served: Mapping[str, list[str]]) -> Iterator[Inspected]:
    """Yield the operators and schedulers, with versions and kinds, and what Muster would make of them and is not served.

    `served`: the kinds of the groups and versions of `to_read`, as far as they could be read.
    """
    for name, versions in groups.items():
        has = f": {listed(served[name], SHOWN_KINDS)}" if served.get(name) else ""
        yield Inspected("operators", "ok", f"{OPERATORS[name]} ({name}: {', '.join(versions)}){has}")
        if name not in USED:
            continue
        kind, version, without = USED[name]
        lacks = "" if version in versions else f"serves {', '.join(versions) or 'no version'} of {name}"
        if not lacks and name in served and kind not in served[name]:
            lacks = f"serves {', '.join(served[name]) or 'no kind'} in {name}/{version}"
        if lacks:
            words = f"the cluster {lacks}, and Muster uses {kind} of {name}/{version}: {without}"
            yield Inspected(
                "operators", "note", words, f"a release of {OPERATORS[name]} with {kind} {version}", PLATFORM
            )
