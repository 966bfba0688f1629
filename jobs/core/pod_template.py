"""What a queue says of its jobs' pods beyond a job's own fields: parsed once, with what each part may do. Pure.

A document has `node` (what a node of the queue has), `shm_per_gpu`, `storage` (claims of each job's own),
`topology` (the level that its replicas share), `egress` (networks that its pods may reach), `locked` (fields that a job may not set) and `pods`
(parts of a pod as Kubernetes writes them). It is stored as given; `layer` turns it into a shape for one role.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from common.errors import Problem
from queues import quantities
from queues.shape import ReplicaShape, of_resources

from . import egress, pod_fields, volumes
from .fields import FIELDS
from .plan import Role
from .pod_rights import PLAIN_VOLUMES

MOST_BYTES = 64 * 1024
PARTS = ("node", "shm_per_gpu", "storage", "topology", "egress", "locked", "pods")
WORKSPACE, CHECKPOINTS = "workspace", "checkpoints"
NODE = ("cpus", "memory", "gpu_type", "resource")
PODS = (
    "service_account", "scheduler", "pull_secrets", "affinity", "security", "host_network", "init_containers",
    "sidecars", "volumes", "mounts",
)  # fmt: skip
_OF_POD = (
    "runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup", "fsGroupChangePolicy", "supplementalGroups", "seccompProfile",
    "sysctls",
)  # fmt: skip
_OF_CONTAINER = (
    "allowPrivilegeEscalation", "capabilities", "privileged", "procMount", "readOnlyRootFilesystem", "runAsUser",
    "runAsGroup", "runAsNonRoot", "seccompProfile",
)  # fmt: skip
SECURITY = tuple(dict.fromkeys((*_OF_POD, *_OF_CONTAINER)))
CONTAINER = (
    "name", "image", "imagePullPolicy", "command", "args", "workingDir", "env", "envFrom", "resources", "ports",
    "volumeMounts", "securityContext", "startupProbe", "livenessProbe", "readinessProbe", "lifecycle",
)  # fmt: skip
_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("allowPrivilegeEscalation", "privileged", "readOnlyRootFilesystem", "runAsNonRoot"), bool),
    **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), int),
    **dict.fromkeys(("supplementalGroups", "sysctls"), list),
    **dict.fromkeys(("capabilities", "seccompProfile"), Mapping),
    **dict.fromkeys(("procMount", "fsGroupChangePolicy"), str),
}
_MUST: Mapping[type, str] = {
    bool: "must be true or false, without quotes",
    int: "must be a whole number from 0 to 2147483647, without quotes",
    list: "must be a list",
    Mapping: "must map names to values",
    str: "must be text",
}
_OWN_VOLUMES = re.compile(r"(agent|told|state|tmp|shm|job|from|workspace|checkpoints|(volume|secret)-[0-9]+)\Z")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_OBJECT = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")
_LEVEL = re.compile(r"(?=.{1,253}\Z)([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_DEVICE = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")


def parse(value: Any, problems: list[Problem]) -> dict[str, Any]:
    """Return a queue's document as it is stored; adds to `problems`. What the cluster itself checks is left to it."""
    if value in (None, "", {}):
        return {}
    if not isinstance(value, Mapping):
        problems.append(Problem("template", value, f"must map parts to values; known are {', '.join(PARTS)}"))
        return {}
    given = {name: one for name, one in value.items() if one not in (None, "", {}, [])}
    _known(given, PARTS, "", problems)
    if len(json.dumps(given, default=str)) > MOST_BYTES:
        problems.append(Problem("template", None, f"is longer than {MOST_BYTES // 1024} KiB; shorten it"))
        return {}
    before = len(problems)
    if "node" in given and _is_mapping(given["node"], "node", problems):
        _check_node(given["node"], problems)
    if "shm_per_gpu" in given:
        _check_amount("shm_per_gpu", given["shm_per_gpu"], quantities.MEMORY, problems)
    if "storage" in given and _is_mapping(given["storage"], "storage", problems):
        _check_storage(given["storage"], problems)
    if "topology" in given and _is_mapping(given["topology"], "topology", problems):
        _check_topology(given["topology"], problems)
    if "egress" in given:
        egress.check(given["egress"], problems)
    if "locked" in given:
        _check_locked(given["locked"], problems)
    if "pods" in given and _is_mapping(given["pods"], "pods", problems):
        _check_pods(given["pods"], problems)
    return {name: given[name] for name in PARTS if name in given} if len(problems) == before else {}


def layer(document: Mapping[str, Any], role: Role, *, gpus_per_node: int) -> ReplicaShape:
    """Return what the document says of one role's pods.

    A replica that takes a part of a node's GPUs gets the same part of its CPUs and memory.
    """
    node, pods = document.get("node", {}), document.get("pods", {})
    amounts = {}
    if role.slots and gpus_per_node:
        part = Fraction(min(role.slots, gpus_per_node), gpus_per_node)
        amounts = {
            name: _scaled(quantities.parse(node[given], name), part)
            for name, given in (("cpu", "cpus"), ("memory", "memory"))
            if given in node
        }
    shape = of_resources(**amounts)
    shm = (
        _scaled(quantities.parse(document["shm_per_gpu"], quantities.MEMORY), Fraction(role.slots))
        if document.get("shm_per_gpu") and role.slots
        else ""
    )
    security = pods.get("security", {})
    return ReplicaShape(
        requests=shape.requests,
        limits=shape.limits,
        shm=shm,
        device=str(node.get("resource", "")),
        service_account=pods.get("service_account", ""),
        scheduler=pods.get("scheduler", ""),
        pull_secrets=tuple(pods.get("pull_secrets", ())),
        affinity=pods.get("affinity", {}),
        topology=document.get("topology", {}),
        pod_security={name: security[name] for name in _OF_POD if name in security},
        security={name: security[name] for name in _OF_CONTAINER if name in security and name not in _OF_POD},
        host_network=bool(pods.get("host_network", False)),
        init_containers=tuple(pods.get("init_containers", ())),
        sidecars=tuple(pods.get("sidecars", ())),
        volumes=tuple(pods.get("volumes", ())),
        mounts=tuple(pods.get("mounts", ())),
    )


@dataclass(frozen=True)
class Storage:
    """A claim of a job's own: `WORKSPACE`, which goes with the job, or `CHECKPOINTS`, which outlive its end."""

    size: str
    storage_class: str = ""


def storage(document: Mapping[str, Any], *, slots: int) -> dict[str, Storage]:
    """Return the claims that a job of this many slots gets, by kind. Sizes grow with its GPUs."""
    return {
        kind: Storage(_scaled(str(one["size_per_gpu"]), Fraction(max(slots, 1))), one.get("storage_class", ""))
        for kind, one in document.get("storage", {}).items()
    }


def refuse_locked(
    document: Mapping[str, Any], sent: Mapping[str, Any], defaults: Mapping[str, Any], queue: str
) -> list[Problem]:
    """Return a problem for each field of a job that its queue keeps for itself, also within `roles`."""
    locked = document.get("locked", [])
    words = f"is set by queue {queue} for all of its jobs; remove it"
    found = [
        Problem(name, sent[name], words)
        for name in locked
        if sent.get(name) not in (None, "", [], {}, ()) and sent[name] != defaults.get(name)
    ]
    of_roles = tuple(f"_{name}" for name in locked if name in ("cpu", "memory"))  # fields of frameworks, as `head_cpu`
    found += [
        Problem(name, value, words)
        for name, value in sent.items()
        if name.endswith(of_roles) and value not in (None, "") and value != defaults.get(name)
    ]
    roles = sent.get("roles")
    for role, given in roles.items() if isinstance(roles, Mapping) else ():
        inside = [name for name in locked if isinstance(given, Mapping) and given.get(name) not in (None, "", [], {})]
        found += [Problem(f"roles.{role}.{name}", given[name], words) for name in inside]
    return found


# -- checks


def _check_node(node: Mapping[str, Any], problems: list[Problem]) -> None:
    _known(node, NODE, "node.", problems)
    for name, kind in (("cpus", quantities.CPU), ("memory", quantities.MEMORY)):
        if name in node:
            _check_amount(f"node.{name}", node[name], kind, problems)
    kind = node.get("gpu_type", "")
    if not isinstance(kind, str) or len(kind) > 80 or not kind.isprintable():
        problems.append(Problem("node.gpu_type", kind, "must be text of at most 80 characters, such as h100-80gb"))
    device = node.get("resource", "")
    if device != "" and not (isinstance(device, str) and _DEVICE.match(device)):
        words = "is no resource of a node; write it as nodes offer it, such as nvidia.com/gpu or nvidia.com/mig-1g.10gb"
        problems.append(Problem("node.resource", device, words))


def _check_topology(given: Mapping[str, Any], problems: list[Problem]) -> None:
    _known(given, ("require", "prefer"), "topology.", problems)
    for name, level in given.items():
        if not (isinstance(level, str) and _LEVEL.match(level)):
            words = "is not the key of a node's label; write it as nodes have it, such as topology.kubernetes.io/zone"
            problems.append(Problem(f"topology.{name}", level, words))


def _check_storage(given: Mapping[str, Any], problems: list[Problem]) -> None:
    _known(given, (WORKSPACE, CHECKPOINTS), "storage.", problems)
    for kind, one in given.items():
        if not _is_mapping(one, f"storage.{kind}", problems):
            continue
        _known(one, ("size_per_gpu", "storage_class"), f"storage.{kind}.", problems)
        if "size_per_gpu" in one:
            _check_amount(f"storage.{kind}.size_per_gpu", one["size_per_gpu"], quantities.MEMORY, problems)
        else:
            problems.append(Problem(f"storage.{kind}.size_per_gpu", None, "is missing; give a size such as 10Gi"))
        if one.get("storage_class") and not _is_object(one["storage_class"]):
            words = "is not the name of a class; use a-z, 0-9, - and ."
            problems.append(Problem(f"storage.{kind}.storage_class", one["storage_class"], words))


def _check_amount(field: str, value: Any, kind: str, problems: list[Problem]) -> None:
    try:
        quantities.parse(value, kind)
    except ValueError as error:
        problems.append(Problem(field, value, str(error)))


def _check_locked(locked: Any, problems: list[Problem]) -> None:
    if not isinstance(locked, list) or not all(isinstance(one, str) for one in locked):
        problems.append(Problem("locked", locked, 'must be a list of fields of a job, such as ["image"]'))
        return
    for one in locked:
        if one not in FIELDS or one in ("name", "command"):
            problems.append(Problem("locked", one, "is not a field that a queue can keep; GET /job-fields lists them"))


def _check_pods(pods: Mapping[str, Any], problems: list[Problem]) -> None:
    _known(pods, PODS, "pods.", problems)
    for name in ("service_account", "scheduler"):
        if pods.get(name, "") != "" and not _is_object(pods[name]):
            problems.append(Problem(f"pods.{name}", pods[name], "is not a name; use a-z, 0-9, - and ."))
    secrets = pods.get("pull_secrets", [])
    if not isinstance(secrets, list) or not all(map(_is_object, secrets)):
        problems.append(
            Problem("pods.pull_secrets", secrets, 'must be a list of names of Secrets, such as ["registry"]')
        )
    if not isinstance(pods.get("host_network", False), bool):
        problems.append(Problem("pods.host_network", pods["host_network"], "must be true or false"))
    if "affinity" in pods and _is_mapping(pods["affinity"], "pods.affinity", problems):
        _known(pods["affinity"], ("nodeAffinity", "podAffinity", "podAntiAffinity"), "pods.affinity.", problems)
    if "security" in pods and _is_mapping(pods["security"], "pods.security", problems):
        _check_security(pods["security"], SECURITY, "pods.security", problems)
    names = _check_volumes(pods.get("volumes", []), problems)
    _check_mounts(pods.get("mounts", []), "pods.mounts", names, problems)
    seen: set[str] = {"replica"}
    for name in ("init_containers", "sidecars"):
        given = pods.get(name, [])
        if not isinstance(given, list) or len(given) > 10:
            problems.append(Problem(f"pods.{name}", None, "must be a list of at most 10 containers"))
            continue
        for number, one in enumerate(given):
            if _is_mapping(one, f"pods.{name}.{number}", problems):
                _check_container(one, f"pods.{name}.{number}", names, seen, problems=problems)


def _check_security(context: Mapping[str, Any], known: Iterable[str], path: str, problems: list[Problem]) -> None:
    """Check names, and the types of what `privileges` judges: null, "0" or 0.0 would be read as something else there."""
    _known(context, known, f"{path}.", problems)
    for name, value in context.items():
        expected = _TYPES.get(name)
        if value is None or (expected and not _is_a(value, expected)):
            words = _MUST[expected] if expected else "is null; leave it out for what pods have otherwise"
            problems.append(Problem(f"{path}.{name}", value, words))
    for name, inner in (("capabilities", ("add", "drop")), ("seccompProfile", ("type", "localhostProfile"))):
        if isinstance(context.get(name), Mapping):
            _known(context[name], inner, f"{path}.{name}.", problems)
    capabilities = context.get("capabilities")
    for name, value in capabilities.items() if isinstance(capabilities, Mapping) else ():
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            problems.append(Problem(f"{path}.capabilities.{name}", value, 'must be a list such as ["ALL"]'))


def _is_a(value: Any, expected: type) -> bool:
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return isinstance(value, expected)


def _check_volumes(given: Any, problems: list[Problem]) -> set[str]:
    if not isinstance(given, list) or len(given) > 20:
        problems.append(Problem("pods.volumes", None, "must be a list of at most 20 volumes"))
        return set()
    names: set[str] = set()
    for number, one in enumerate(given):
        path = f"pods.volumes.{number}"
        if not _is_mapping(one, path, problems):
            continue
        name = one.get("name")
        if not isinstance(name, str) or not _NAME.match(name) or _OWN_VOLUMES.match(name):
            problems.append(
                Problem(f"{path}.name", name, "is missing, no name, or one of Muster's own; choose another name")
            )
        elif name in names:
            problems.append(Problem(f"{path}.name", name, "appears twice; give each volume a name of its own"))
        else:
            names.add(name)
        kinds = [kind for kind in one if kind != "name"]
        if len(kinds) != 1 or not isinstance(one[kinds[0]], Mapping):
            problems.append(
                Problem(path, None, f"needs exactly one type beside its name, such as {', '.join(PLAIN_VOLUMES)}")
            )
    return names


def _check_mounts(given: Any, path: str, names: set[str], problems: list[Problem]) -> None:
    if not isinstance(given, list):
        problems.append(Problem(path, None, "must be a list such as [{name: data, mountPath: /data}]"))
        return
    for number, one in enumerate(given):
        at = f"{path}.{number}"
        if not _is_mapping(one, at, problems):
            continue
        _known(one, ("name", "mountPath", "readOnly", "subPath"), f"{at}.", problems)
        if not isinstance(one.get("name"), str) or one["name"] not in names:
            words = f"is no volume of this template; it has {', '.join(sorted(names)) or 'none'}"
            problems.append(Problem(f"{at}.name", one.get("name"), words))
        if complaint := volumes.path_complaint(one.get("mountPath")):
            problems.append(Problem(f"{at}.mountPath", one.get("mountPath"), complaint))


def _check_container(
    one: Mapping[str, Any], path: str, names: set[str], seen: set[str], *, problems: list[Problem]
) -> None:
    _known(one, CONTAINER, f"{path}.", problems)
    name = one.get("name")
    if not isinstance(name, str) or not _NAME.match(name) or name in seen:
        problems.append(
            Problem(f"{path}.name", name, "is missing, no name, or taken; give each container a name of its own")
        )
    else:
        seen.add(name)
    if not one.get("image"):
        problems.append(Problem(f"{path}.image", None, "is missing; name the container's image"))
    pod_fields.parse({"image": one.get("image")}, problems, prefix=f"{path}.")
    _check_mounts(one.get("volumeMounts", []), f"{path}.volumeMounts", names, problems)
    if "securityContext" in one and _is_mapping(one["securityContext"], f"{path}.securityContext", problems):
        _check_security(one["securityContext"], _OF_CONTAINER, f"{path}.securityContext", problems)


def _known(given: Mapping[str, Any], known: Iterable[str], prefix: str, problems: list[Problem]) -> None:
    names = tuple(known)
    problems += [
        Problem(f"{prefix}{name}", None, f"is not known; known are {', '.join(names)}")
        for name in sorted(map(str, given))
        if name not in names
    ]


def _is_mapping(value: Any, field: str, problems: list[Problem]) -> bool:
    if isinstance(value, Mapping):
        return True
    problems.append(Problem(field, None, "must map names to values"))
    return False


def _is_object(value: Any) -> bool:
    return isinstance(value, str) and bool(_OBJECT.match(value))


def _scaled(amount: str, part: Fraction) -> str:
    """Return a share of an amount: CPUs in thousandths, memory in whole mebibytes or gibibytes."""
    whole = quantities.read(amount) * part
    if whole < 10**6:
        return str(int(whole)) if whole.denominator == 1 else f"{int(whole * 1000)}m"
    mebibytes = int(whole // 2**20)
    whole_gibibytes, rest = divmod(mebibytes, 1024)
    return amount if part == 1 else f"{mebibytes}Mi" if rest else f"{whole_gibibytes}Gi"
