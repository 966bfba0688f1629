"""Turn a plan into Kubernetes objects: one Service that owns the attempt, one Secret, one pod per replica. Pure.

Every object is a plain dictionary, as the API takes it. Pods satisfy the Pod Security level *restricted*.
"""

import base64
import hashlib
import ipaddress
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from common.errors import Refused
from jobs.clusters.replica_file import mark, place_name, secret_variable, start_variables, volume_variable
from jobs.core import egress
from jobs.core.plan import Claim, Endpoint, First, FirstRank, Here, Host, Index, Launch, Plan, Port, Role, Value
from queues.shape import ReplicaShape

from . import labels, mounts, placement
from .mounts import AGENT, SECRETS, SHARED, STATE, VOLUMES, Manifest
from .site import Site

# Agents send their last data after the grace period; the kubelet must not kill them before (docs/wire.md, section 2).
DRAIN_SECONDS = 60
# A pod that cannot reach us is misconfigured more often than we are down; its job reports that within a minute.
GIVE_UP_SECONDS = 45
HOME = f"{STATE}/home"
CONTAINER = "replica"
# Where API servers listen, behind their Service or at its own port: policies know no names, and its address is not ours to know.
API_PORTS = (443, 6443)
MESH_VERSION = "monarch.pytorch.org/v1alpha1"
PYTHON = "python3"  # what the image must have on its PATH


def agent_config(pyz: bytes, start: bytes) -> Manifest:
    """Return the agent's ConfigMap, immutable and named by its hash: pods of two releases run side by side."""
    digest = hashlib.sha256(pyz + start).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"muster-agent-{digest}", "labels": {labels.AGENT: digest}},
        "immutable": True,
        "binaryData": {"agent.pyz": _encoded(pyz), "start.py": _encoded(start)},
    }


def service(plan: Plan) -> Manifest:
    """Return the owner of everything in the attempt, which also gives its pods DNS names before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": labels.service(plan.run, plan.attempt),
            "labels": labels.of_attempt(plan.run, plan.attempt),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels.of_attempt(plan.run, plan.attempt),
        },
    }


def headless_service(plan: Plan, *, owner: str) -> Manifest:
    """Return the Service by the job's own name, for programs that look up all its pods. It ends with the attempt's own.

    Pods have their names in the attempt's own Service alone: a pod has one subdomain.
    """
    mine = {**labels.of_attempt(plan.run, plan.attempt), labels.OWNER: owner}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**_metadata(plan, owner=owner), "name": labels.headless(plan.job), "labels": mine},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": mine},
    }


def tombstone(run: str, attempt: int) -> Manifest:
    """Return the object that takes the owner's name once it is gone, so that no late call can reopen the attempt."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": labels.service(run, attempt),
            "labels": {**labels.of_attempt(run, attempt), labels.SEALED: "true"},
        },
        "spec": {"clusterIP": "None"},
    }


def network_policy(plan: Plan, site: Site, *, owner: str) -> Manifest:
    """Limit the attempt's pods to traffic with each other, DNS, the control plane, `site.egress` and `plan.egress`.

    Ingress is allowed from each other only. A policy cannot select "the same value of a label", so each attempt has its
    own, which is deleted with its owner.
    """
    mine = {**labels.of_attempt(plan.run, plan.attempt), labels.OWNER: owner}
    reached = egress.blocks((*site.egress, *plan.egress))
    others: list[Manifest] = [{"to": [{"ipBlock": block} for block in reached]}] if reached else []
    if any(role.reads_pods for role in plan.roles):
        others.append({"ports": [{"protocol": "TCP", "port": port} for port in API_PORTS]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            **_metadata(plan, owner=owner),
            "name": labels.secret(plan.run, plan.attempt, owner=owner),
            "labels": labels.of_attempt(plan.run, plan.attempt),
        },
        "spec": among_themselves({"matchLabels": mine}, site, *others),
    }


def among_themselves(selector: Manifest, site: Site, *others: Manifest) -> Manifest:
    """Return the policy of pods that reach each other, DNS, the control plane and `others`, and are reached by each other."""
    peers = [{"podSelector": selector}]
    dns = {"ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]}
    return {
        "podSelector": selector,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers}],
        "egress": [{"to": peers}, dns, _to_control(site.control_url), *others],
    }


def _to_control(url: str) -> Manifest:
    """Allow the control plane by address if the URL has one, otherwise by port alone: policies know no host names."""
    parts = urlsplit(url)
    port = {"ports": [{"protocol": "TCP", "port": parts.port or (443 if parts.scheme == "https" else 80)}]}
    try:
        host = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return port
    return {"to": [{"ipBlock": {"cidr": f"{host}/{host.max_prefixlen}"}}], **port}


def secret(plan: Plan, site: Site, *, owner: str, replica: tuple[str, int] | None = None) -> Manifest:
    """Return the Secret with each role's configuration, the user's variables and one token per agent.

    Each pod mounts its own part. `replica`: only for this one, which was created later than the rest.
    """
    content = {f"{role.name}.json": json.dumps(replica_config(plan, role, site)) for role in plan.roles}
    content |= {name: token for name, token in plan.secrets.items() if not replica or name == place_name(*replica)}
    content |= {key: files[name] for files, items in mounts.secret_items(plan) for name, key in items.items()}
    if site.control_ca:
        content["control-ca.pem"] = site.control_ca
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            **_metadata(plan, owner=owner),
            "name": _secret_name(plan, replica, owner)
            if replica
            else labels.secret(plan.run, plan.attempt, owner=owner),
            "labels": labels.of_attempt(plan.run, plan.attempt),
        },
        "immutable": True,
        "data": {name: _encoded(text.encode()) for name, text in content.items()},
    }


def pull_secret(plan: Plan, *, owner: str) -> Manifest:
    """Return the Secret with the registry logins of the team's secrets, by which nodes pull the images."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {
            **_metadata(plan, owner=owner),
            "name": labels.secret(plan.run, plan.attempt, owner=owner, replica="pull"),
            "labels": labels.of_attempt(plan.run, plan.attempt),
        },
        "immutable": True,
        "data": {".dockerconfigjson": _encoded(plan.docker_config.encode())},
    }


def claim(wanted: Claim) -> Manifest:
    """Return the claim of a team's volume, or of a job. It belongs to no attempt and outlives them all."""
    spec: Manifest = {"accessModes": [wanted.access_mode], "resources": {"requests": {"storage": wanted.size}}}
    if wanted.storage_class:
        spec["storageClassName"] = wanted.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": wanted.name, "labels": labels.of_claim(wanted)},
        "spec": spec,
    }


def replica_config(plan: Plan, role: Role, site: Site) -> dict[str, Any]:
    """Return replica.json without the index (docs/wire.md, section 1), which `pod_entry.py` adds.

    No port is held: a pod has an address of its own, on which no other process can take the port first.
    """
    return {
        "run": plan.run,
        "attempt": plan.attempt,
        "role": role.name,
        "framework": plan.framework,
        "processes": role.processes,
        "first_rank": role.first_rank,
        "is_rank": role.is_rank,
        "command": list(role.command),
        "working_dir": role.shape.working_dir,
        "env": dict(plan.env),
        "hold_port": None,
        "grace_seconds": plan.grace_seconds,
        "start_timeout_seconds": plan.start_timeout_seconds,
        "shared": SHARED if site.job_claim or plan.job_claims else "",
        "mark": mark(plan.run, plan.attempt),
        "is_elastic": role.least is not None,
        "control": {"url": site.control_url},
        "wants_workspace": plan.has_code,
        "give_up_seconds": GIVE_UP_SECONDS,
        "mirror": True,
    }


def pod(plan: Plan, role: Role, index: int, *, site: Site, owner: str, agent: str) -> Manifest:
    """Return one replica's pod. `owner` is the Service's UID, `agent` the name of the agent's ConfigMap."""
    return pods_of(plan, role, site=site, owner=owner, agent=agent)(index)


def pods_of(plan: Plan, role: Role, *, site: Site, owner: str, agent: str) -> Callable[[int], Manifest]:
    """Return a function from a replica's number to its pod. What the role's pods have in common is described once.

    Raises Refused for what no pod of the role can have.
    """
    role = role.on(site.shape)
    common = _pod_spec(plan, role, site=site, owner=owner)
    container = _container(plan, role, site=site)
    of_all, annotations = environment_of_all(plan), _annotations(role)

    def make(index: int) -> Manifest:
        incarnation = plan.incarnation(role.name, index)
        name = labels.pod(plan.run, plan.attempt, role.name, index, incarnation)
        env = environment(plan, role, index, site=site, of_all=of_all)
        secret = _secret_name(plan, (role.name, index), owner)
        config = _config_volume(role, [(f"{role.name}-{index}", "token")], secret, site=site)
        spec: Manifest = {
            "restartPolicy": "Never",
            "hostname": name,
            "subdomain": labels.service(plan.run, plan.attempt),
            **common,
            "containers": [{**container, "env": [{"name": key, "value": value} for key, value in env.items()]}],
            "volumes": mounts.volumes(plan, role.shape, site=site, config=config, agent=agent),
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **_metadata(plan, owner=owner),
                "name": name,
                **annotations,
                "labels": {
                    **role.shape.labels,
                    **labels.for_people(plan.job, plan.user, role=role.name, index=index),
                    **_resolved(role.labels, plan, role, index=index, site=site),
                    **labels.of_replica(plan.run, plan.attempt, role.name, index, incarnation, owner=owner),
                },
            },
            "spec": spec,
        }

    return make


def mesh(plan: Plan, role: Role, *, site: Site, owner: str, agent: str, takes_template: bool) -> Manifest:
    """Return the MonarchMesh whose operator makes the pods of a role, in place of one pod for each replica.

    `takes_template`: `podTemplate` is a PodTemplateSpec (operator 0.2); otherwise it is a PodSpec, which has no labels.
    Raises Refused for a role whose replicas differ in more than their number: a mesh has one template for all of them.
    """
    role = role.on(site.shape)
    tokens = [(f"{role.name}-{index}", f"token-{index}") for index in range(role.replicas)]
    config = _config_volume(role, tokens, _secret_name(plan, (role.name, 0), owner), site=site)
    spec = {
        "restartPolicy": "Always",  # the only one that the StatefulSet of a mesh takes
        **_pod_spec(plan, role, site=site, owner=owner),
        "containers": [{**_container(plan, role, site=site), "env": _mesh_environment(plan, role, site)}],
        "volumes": mounts.volumes(plan, role.shape, site=site, config=config, agent=agent),
    }
    own = labels.of_role(plan.run, plan.attempt, role.name, owner=owner)
    people = labels.for_people(plan.job, plan.user, role=role.name)
    same = {name: value for name, value in role.labels.items() if isinstance(value, str)}
    metadata = {**_annotations(role), "labels": {**role.shape.labels, **people, **same, **own}}
    return {
        "apiVersion": MESH_VERSION,
        "kind": "MonarchMesh",
        "metadata": {**_metadata(plan, owner=owner), "name": role.name, "labels": own},
        "spec": {
            "replicas": role.replicas,
            "port": next((value.number for value in role.env.values() if isinstance(value, Port)), None),
            "podTemplate": {"metadata": metadata, "spec": spec} if takes_template else spec,
        },
    }


def _mesh_environment(plan: Plan, role: Role, site: Site) -> list[Manifest]:
    """Return the variables of a template: what differs by pod is read from the pod, before what refers to it."""
    differs = sorted(name for name, value in role.env.items() if isinstance(value, Index | FirstRank | First | Here))
    if differs:
        raise Refused(
            f"a MonarchMesh has one template for all its pods, but {', '.join(differs)} of {role.name} differs"
        )
    values = environment(plan, role, 0, site=site)
    values["MUSTER_HOST"] = f"$(MUSTER_POD).{labels.mesh_domain(role.name, namespace=site.namespace)}"
    del values["MUSTER_INDEX"]
    fields = {"MUSTER_POD": "metadata.name", "MUSTER_INDEX": f"metadata.labels['{labels.POD_INDEX}']"}
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        *({"name": name, "value": value} for name, value in values.items()),
    ]


def environment_of_all(plan: Plan) -> dict[str, str]:
    """Return the variables that all replicas have alike: where volumes and files are."""
    env = {volume_variable(name): path or f"{VOLUMES}/{name}" for name, path in plan.volumes.items()}
    env |= start_variables(plan, mounts.start_folder(plan))
    return env | {secret_variable(name): one.path or f"{SECRETS}/{name}" for name, one in plan.secret_files.items()}


def environment(
    plan: Plan, role: Role, index: int, *, site: Site, of_all: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables that differ per replica, or that a restricted pod lacks.

    The user's own are in the Secret. `of_all`: what `environment_of_all` returned.
    """
    return {
        **_resolved(role.env, plan, role, index=index, site=site),
        **(environment_of_all(plan) if of_all is None else of_all),
        "MUSTER_HOST": resolve(Here(), plan, role, index=index, namespace=site.namespace),
        "MUSTER_INDEX": str(index),
        **({"MUSTER_INCARNATION": str(again)} if (again := plan.incarnation(role.name, index)) else {}),
        "HOME": HOME,
        "TMPDIR": "/tmp",  # noqa: S108 - a folder of the pod's own
        "USER": "muster",
        "LOGNAME": "muster",
    }


def _resolved(values: Mapping[str, Value], plan: Plan, role: Role, *, index: int, site: Site) -> dict[str, str]:
    return {name: resolve(one, plan, role, index=index, namespace=site.namespace) for name, one in values.items()}


def resolve(value: Value, plan: Plan, role: Role, *, index: int, namespace: str) -> str:
    match value:
        case Index(first):
            return str(first + index)
        case FirstRank():
            return str(role.first_rank + index * role.processes)
        case Host(role=name, index=number):
            return labels.host(plan.run, plan.attempt, name, number, namespace=namespace)
        case Here():
            incarnation = plan.incarnation(role.name, index)
            return labels.host(plan.run, plan.attempt, role.name, index, incarnation, namespace=namespace)
        case Port(number=number):
            return str(number)
        case Endpoint(host=host, port=port):
            return f"{labels.host(plan.run, plan.attempt, host.role, host.index, namespace=namespace)}:{port.number}"
        case Launch():
            return mark(plan.run, plan.attempt)
        case First(first=first, rest=rest):
            return rest if index else first
        case _:
            return value


def _metadata(plan: Plan, *, owner: str) -> Manifest:
    name = labels.service(plan.run, plan.attempt)
    return {"name": name, "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name, "uid": owner}]}


def _pod_spec(plan: Plan, role: Role, *, site: Site, owner: str) -> Manifest:
    """Return what the pods of a role have in common, beside containers and volumes; its shape is the whole one."""
    spec: Manifest = {
        "terminationGracePeriodSeconds": plan.grace_seconds + DRAIN_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {**pod_security(site), **role.shape.pod_security},
    }
    if first := [*_containers(role.shape.init_containers), *_containers(role.shape.sidecars, is_sidecar=True)]:
        spec["initContainers"] = first
    if role.shape.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if account := role.shape.service_account:
        spec |= {"serviceAccountName": account, "automountServiceAccountToken": account in plan.token_accounts}
    if role.reads_pods:
        spec |= {"serviceAccountName": site.reader_account, "automountServiceAccountToken": True}
    spec |= placement.of_shape(role.shape)
    if plan.docker_config:
        own = {"name": labels.secret(plan.run, plan.attempt, owner=owner, replica="pull")}
        spec["imagePullSecrets"] = [*spec.get("imagePullSecrets", []), own]
    return {**spec, **placement.of_attempt(plan, role, site)}


def _containers(given: Iterable[Mapping[str, Any]], *, is_sidecar: bool = False) -> list[Manifest]:
    """Return a template's containers. A sidecar is an init container that goes on: it does not keep the pod from ending."""
    usual = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return [
        {
            **one,
            "securityContext": {**usual, **one.get("securityContext", {})},
            **({"restartPolicy": "Always"} if is_sidecar else {}),
        }
        for one in given
    ]


def _annotations(role: Role) -> Manifest:
    return {"annotations": dict(role.shape.annotations)} if role.shape.annotations else {}


def _container(plan: Plan, role: Role, *, site: Site) -> Manifest:
    return {
        "name": CONTAINER,
        "image": role.shape.image,
        "imagePullPolicy": role.shape.pull_policy,
        "command": [PYTHON, f"{AGENT}/start.py"],
        "resources": _resources(role.shape, devices_of(plan.resource, role, site)),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            **role.shape.security,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*mounts.mounts(plan, site), *map(dict, role.shape.mounts)],
    }


def devices_of(resource: str, role: Role, site: Site) -> dict[str, str]:
    """Return the devices of each replica of a role, as Kubernetes counts them; `resource` by its name in the queue."""
    if resource not in site.devices or not role.slots:
        return {}
    return {role.shape.device or site.devices[resource]: str(role.slots)}


def _resources(shape: ReplicaShape, devices: Mapping[str, str]) -> Manifest:
    """Return resources. Devices are both request and limit, because Kubernetes requires the two to be equal."""
    wanted = {"requests": {**shape.requests, **devices}, "limits": {**shape.limits, **devices}}
    return {name: amounts for name, amounts in wanted.items() if amounts}


def pod_security(site: Site) -> Manifest:
    return {
        "runAsNonRoot": True,
        "runAsUser": site.user,
        "runAsGroup": site.user,
        "fsGroup": site.user,
        "fsGroupChangePolicy": "OnRootMismatch",  # a team's data is large; do not visit every file at start
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _config_volume(role: Role, tokens: list[tuple[str, str]], secret: str, *, site: Site) -> Manifest:
    """Mount the role's configuration and these tokens of the Secret, each as (key, file): never those of other pods."""
    files = [(f"{role.name}.json", "role.json"), *tokens]
    if site.control_ca:
        files.append(("control-ca.pem", "control-ca.pem"))
    return {"secretName": secret, "defaultMode": 0o440, "items": [{"key": key, "path": path} for key, path in files]}


def _secret_name(plan: Plan, replica: tuple[str, int], owner: str) -> str:
    incarnation = plan.incarnation(*replica)
    own = f"{replica[0]}-{replica[1]}-r{incarnation}" if incarnation else ""
    return labels.secret(plan.run, plan.attempt, owner=owner, replica=own)


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
