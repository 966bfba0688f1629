"""What the pods of a queue's template may do: what it gives them beyond their need, and which objects of the cluster it names. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_AMOUNTS = ("cpu", "memory", "ephemeral-storage")  # what a container beside a job's own may take of its node
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
# Types of volumes that hold nothing of the node's, of the network's or of other pods.
PLAIN_VOLUMES = ("emptyDir", "configMap", "secret", "projected", "downwardAPI", "persistentVolumeClaim")


@dataclass(frozen=True)
class Named:
    """An object of the cluster that a template names, and where."""

    path: str
    kind: str  # service_account, token, pull_secret, secret, config_map or claim
    name: str


def privileges(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what gives a pod more of its node than it needs, by path: only platform administrators may add it.

    The value is all that the privilege depends on: of a container the whole container, since who may change its image
    or command has what it may do; of a volume where it is mounted, and by whom.
    """
    pods = document.get("pods", {})
    found: dict[str, Any] = {}
    if pods.get("host_network"):
        found["pods.host_network"] = True
    found |= _of_security(pods.get("security", {}), "pods.security")
    found |= _of_affinity(pods.get("affinity", {}))
    mounts = [{"by": "replica", **one} for one in pods.get("mounts", [])]
    for path, one in _containers(pods):
        has = [*_of_security(one.get("securityContext", {}), f"{path}.securityContext"), *_beyond(one, path)]
        found |= dict.fromkeys(has, one)
        mounts += [{"by": one, **mount} for mount in one.get("volumeMounts", [])]
    for number, one in enumerate(pods.get("volumes", [])):
        theirs = [mount for mount in mounts if mount.get("name") == one.get("name")]
        odd = [kind for kind in one if kind not in ("name", *PLAIN_VOLUMES)]
        found |= {f"pods.volumes.{number}.{kind}": {"volume": one, "mounts": theirs} for kind in odd}
    return found


def named(document: Mapping[str, Any]) -> list[Named]:
    """Return every object of the cluster that the document names."""
    pods = document.get("pods", {})
    found = [Named(f"pods.pull_secrets.{n}", "pull_secret", one) for n, one in enumerate(pods.get("pull_secrets", []))]
    if pods.get("service_account"):
        found.append(Named("pods.service_account", "service_account", pods["service_account"]))
    for number, one in enumerate(pods.get("volumes", [])):
        found += _of_volume(one, f"pods.volumes.{number}")
    for path, one in _containers(pods):
        found += _of_env(one, path)
    return found


def _containers(pods: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in ("init_containers", "sidecars"):
        for number, one in enumerate(pods.get(name, [])):
            yield f"pods.{name}.{number}", one


def _beyond(one: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the paths of a container at which it takes devices, which no quota counts, or reaches into its node's network."""
    ports = one.get("ports")
    for number, port in enumerate(ports if isinstance(ports, list) else []):
        if isinstance(port, Mapping) and (port.get("hostPort") or port.get("hostIP")):
            yield f"{path}.ports.{number}.hostPort"
    resources = one.get("resources")
    for kind, amounts in resources.items() if isinstance(resources, Mapping) else ():
        if kind not in ("requests", "limits"):
            yield f"{path}.resources.{kind}"
        for name in amounts if isinstance(amounts, Mapping) else ():
            if name not in _AMOUNTS:
                yield f"{path}.resources.{kind}.{name}"
    lifecycle = one.get("lifecycle")
    actions = {name: one.get(name) for name in _PROBES}
    actions |= (
        {f"lifecycle.{name}": action for name, action in lifecycle.items()} if isinstance(lifecycle, Mapping) else {}
    )
    for name, action in actions.items():
        for kind in ("httpGet", "tcpSocket"):  # the kubelet asks: from the node, wherever `host` is
            asked = action.get(kind) if isinstance(action, Mapping) else None
            if isinstance(asked, Mapping) and asked.get("host"):
                yield f"{path}.{name}.{kind}.host"


def _of_security(context: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the entries of a security context beyond what Kubernetes' `restricted` profile allows."""
    capabilities, profile = context.get("capabilities", {}), context.get("seccompProfile", {})
    is_kept = "capabilities" in context and "ALL" not in capabilities.get("drop", [])
    beyond = {
        "privileged": context.get("privileged"),
        "capabilities.add": capabilities.get("add"),
        "capabilities.drop": is_kept and not capabilities.get("add") and "not ALL",
        "allowPrivilegeEscalation": context.get("allowPrivilegeEscalation"),
        "procMount": context.get("procMount") not in (None, "Default") and context["procMount"],
        "runAsNonRoot": context.get("runAsNonRoot") is False and "false",
        # Not only root: on claims that teams share, a pod with another team's user can read and write that team's files.
        "runAsUser": "runAsUser" in context and str(context["runAsUser"]),
        "runAsGroup": "runAsGroup" in context and str(context["runAsGroup"]),
        "fsGroup": "fsGroup" in context and str(context["fsGroup"]),
        "fsGroupChangePolicy": context.get("fsGroupChangePolicy"),
        "supplementalGroups": context.get("supplementalGroups"),
        "seccompProfile": "seccompProfile" in context and profile.get("type") != "RuntimeDefault" and "other",
        "sysctls": context.get("sysctls"),
    }
    return {f"{path}.{name}": value for name, value in beyond.items() if value}


def _of_affinity(affinity: Any) -> dict[str, Any]:
    """Return rules by which a pod keeps pods of others off its node or a whole level, or finds where they are."""
    found: dict[str, Any] = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) if isinstance(affinity, Mapping) else None
        for when, terms in rules.items() if isinstance(rules, Mapping) else ():
            is_apart = kind == "podAntiAffinity" and when == _REQUIRED and bool(terms)
            if is_apart or any(map(_looks_for_others, terms if isinstance(terms, list) else ())):
                found[f"pods.affinity.{kind}.{when}"] = terms
    return found


def _looks_for_others(term: Any) -> bool:
    """Whether a rule selects pods of other namespaces, or by labels with which Muster says whose they are."""
    inner = term.get("podAffinityTerm", term) if isinstance(term, Mapping) else {}
    if not isinstance(inner, Mapping):
        return True
    selector = inner.get("labelSelector")
    return "namespaces" in inner or "namespaceSelector" in inner or "muster.dev/" in str(selector)


def _of_volume(one: Mapping[str, Any], path: str) -> list[Named]:
    found = []
    for kind, of, field in (
        ("secret", "secret", "secretName"), ("configMap", "config_map", "name"), ("persistentVolumeClaim", "claim", "claimName"),
    ):  # fmt: skip
        if isinstance(one.get(kind), Mapping):
            found.append(Named(f"{path}.{kind}.{field}", of, str(one[kind].get(field, ""))))
    projected = one.get("projected")
    sources = projected.get("sources") if isinstance(projected, Mapping) else None
    for number, source in enumerate(sources if isinstance(sources, list) else []):
        at = f"{path}.projected.sources.{number}"
        for kind, value in source.items() if isinstance(source, Mapping) else ():
            name = str(value.get("name", "")) if isinstance(value, Mapping) else ""
            if kind in ("secret", "configMap"):
                found.append(Named(f"{at}.{kind}.name", "secret" if kind == "secret" else "config_map", name))
            elif kind != "downwardAPI":  # a token of the account, or of a kind that this release does not know
                found.append(Named(f"{at}.{kind}", "token", kind))
    return found


def _of_env(one: Mapping[str, Any], path: str) -> list[Named]:
    found = []
    for field, inner in (("env", "valueFrom"), ("envFrom", "")):
        entries = one.get(field)
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            source = entry.get(inner) if inner and isinstance(entry, Mapping) else entry
            for key, value in source.items() if isinstance(source, Mapping) else ():
                kind = "secret" if key.startswith("secret") else "config_map" if key.startswith("configMap") else ""
                if kind and isinstance(value, Mapping):
                    found.append(Named(f"{path}.{field}.{number}.{key}.name", kind, str(value.get("name", ""))))
    return found
