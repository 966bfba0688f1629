"""The fields of a job that describe its pods, for all roles or for one: rows of the table, their checks, and the shape. Pure."""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from common.errors import Problem
from queues import quantities
from queues.shape import ReplicaShape, conflicts, merge, of_resources

# A reference as registries know it: host, path, tag and digest (distribution/reference).
_HOST = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?=.{{1,512}}\Z)(?:{_HOST}(?:\.{_HOST})*(?::[0-9]{{1,5}})?/)?{_COMPONENT}(?:/{_COMPONENT})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?\Z"
)
_DNS = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION = {"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int}
_OWN_TAINTS = ("node-role.kubernetes.io/", "node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_AMOUNTS = ("cpu", "memory")  # fields that are requested resources, of the same name
MOST = 50  # entries of one field
MOST_ROLES = 100
MOST_ANNOTATION = 16 * 1024  # characters
MOST_ANNOTATIONS = 128 * 1024  # characters of all keys and values together; Kubernetes takes 256 KiB
MOST_SECONDS = 10**9
MOST_PATH = 255

# By these, controllers of a cluster find pods that they take over or delete, and Muster its own.
_TAKEN_LABELS = (
    "operator-name", "controller-uid", "job-name", "pod-template-hash", "controller-revision-hash", "queue", "applicationId",
    "aadpodidbinding",
)  # fmt: skip
_TAKEN_DOMAINS = (
    "muster.dev", "kubernetes.io", "k8s.io", "x-k8s.io", "kubeflow.org", "ray.io", "monarch.pytorch.org", "run.ai",
    "volcano.sh", "kai.scheduler", "torchrun.ai", "kubetorch.com", "cncf.io", "istio.io", "linkerd.io", "amazonaws.com",
    "workload.identity", "azure.com", "gke.io", "projectcalico.org", "cilium.io", "ovn.org", "vault.hashicorp.com",
    "multus-cni.io", "runai", "yunikorn.apache.org", "spidernet.io", "banzaicloud.io", "antrea.io", "cni.cncf.io",
)  # fmt: skip
_FREE = ("cluster-autoscaler.kubernetes.io/safe-to-evict", "app.kubernetes.io/part-of", "app.kubernetes.io/component")


class Wrong(ValueError):
    """What is wrong with a value, at a path below its field."""

    def __init__(self, words: str, *, at: str = "", value: Any = None):
        super().__init__(words)
        self.at, self.value = at, value


def parse(data: Mapping[str, Any], problems: list[Problem], *, prefix: str = "") -> dict[str, Any]:
    """Return the pod's fields among these, checked, in the form in which they are stored; adds to `problems`."""
    found: dict[str, Any] = {}
    for name, read in _READERS.items():
        if data.get(name) in (None, "", {}, [], ()):
            continue
        try:
            found[name] = read(data[name])
        except Wrong as error:
            at = f".{error.at}" if error.at else ""
            problems.append(Problem(f"{prefix}{name}{at}", error.value if error.at else data[name], str(error)))
        except ValueError as error:
            problems.append(Problem(f"{prefix}{name}", data[name], str(error)))
    return found


def parse_roles(value: Any, problems: list[Problem]) -> dict[str, dict[str, Any]]:
    """Return `roles`: for the name of a role, the fields of its own pods."""
    if value in (None, "", {}):
        return {}
    example = 'such as {"head": {"cpu": "4", "memory": "16Gi"}}'
    if not isinstance(value, Mapping):
        problems.append(Problem("roles", value, f"must map names of roles to their fields, {example}"))
        return {}
    if len(value) > MOST_ROLES:
        problems.append(Problem("roles", len(value), f"has at most {MOST_ROLES} roles"))
        return {}
    found = {}
    for role, given in value.items():
        if not isinstance(role, str) or not isinstance(given, Mapping):
            problems.append(Problem(f"roles.{role}", given, f"must map fields to values, {example}"))
            continue
        problems += [
            Problem(f"roles.{role}.{name}", None, f"is not a field of a role; known are {', '.join(_READERS)}")
            for name in sorted(str(name) for name in given if name not in _READERS)
        ]
        if fields := parse(given, problems, prefix=f"roles.{role}."):
            found[role] = fields
    return found


def over(
    below: Mapping[str, Any], above: Mapping[str, Any], problems: list[Problem], *, prefix: str = ""
) -> dict[str, Any]:
    """Return a job's fields over its queue's, as the sum of the two layers."""
    lower, upper = shape(below), shape(above)
    problems += [
        Problem(f"{prefix}node_selector.{key}", wanted, f"is {given} for every job of this queue; remove it")
        for key, (wanted, given) in conflicts(lower, upper).items()
    ]
    return _of_shape(merge(lower, upper))


def shape(given: Mapping[str, Any]) -> ReplicaShape:
    """Return the layer that these fields describe, as `parse` returned them or as they are stored."""
    amounts = of_resources(cpu=given.get("cpu", ""), memory=given.get("memory", ""))
    others = {name: given[name] for name in NAMES if name in given and name not in _AMOUNTS}
    if "tolerations" in others:
        others["tolerations"] = tuple(others["tolerations"])
    return replace(amounts, **others)


def _of_shape(layer: ReplicaShape) -> dict[str, Any]:
    """Return the fields that describe a layer: the reverse of `shape`."""
    every = {name: layer.limits.get(name) if name in _AMOUNTS else getattr(layer, name) for name in NAMES}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in every.items() if value}


def roles_over(below: Mapping[str, Any], above: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """Return `roles` of a job over those of its queue."""
    return {
        role: over(below.get(role, {}), above.get(role, {}), problems, prefix=f"roles.{role}.")
        for role in {**below, **above}
    }


def shm_problem(whole: ReplicaShape, field: str) -> Problem | None:
    """Return a problem if /dev/shm may hold more than the replica may use."""
    memory = whole.limits.get("memory", "")
    if not whole.shm or not memory or quantities.read(whole.shm) <= quantities.read(memory):
        return None
    words = f"is more than memory {memory}, as which it counts; lower it, or raise memory"
    return Problem(field, whole.shm, words)


def _image(value: Any) -> str:
    if not isinstance(value, str) or not _IMAGE.match(value.strip()):
        raise Wrong("is not the name of an image; write registry/path:tag in lowercase, such as pytorch/pytorch:2.9")
    return value.strip()


def _amount(kind: str) -> Callable[[Any], str]:
    return lambda value: quantities.parse(value, kind)


def _pairs(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise Wrong('must map names to text, such as {"pool": "a100"}')
    if len(value) > MOST:
        raise Wrong(f"has at most {MOST} entries")
    return value


def _check_key(key: Any, value: Any) -> None:
    prefix, slash, name = str(key).rpartition("/")
    if not isinstance(key, str) or not _NAME.match(name) or (slash and not _DNS.match(prefix)):
        words = "is not the key of a label; use at most 63 letters, digits, -, _ and ., and before a / a domain"
        raise Wrong(words, at=str(key), value=value)


def _check_label(key: Any, value: Any) -> None:
    _check_key(key, value)
    if not isinstance(value, str):
        raise Wrong("must be text; quote numbers, true and false", at=key, value=value)
    if value and not _NAME.match(value):
        words = "is not the value of a label; use at most 63 letters, digits, -, _ and ., the first a letter or digit"
        raise Wrong(words, at=key, value=value)


def _check_free(key: str, value: Any) -> None:
    domain = key.rpartition("/")[0]
    if key in _FREE:
        return
    if key in _TAKEN_LABELS or any(domain == one or domain.endswith(f".{one}") for one in _TAKEN_DOMAINS):
        words = "belongs to Muster or to a controller of the cluster, which would act on the pod; choose another key"
        raise Wrong(words, at=key, value=value)


def _node_selector(value: Any) -> dict[str, str]:
    pairs = _pairs(value)
    for key, text in pairs.items():
        _check_label(key, text)
    return dict(pairs)


def _labels(value: Any) -> dict[str, str]:
    found = _node_selector(value)
    for key, text in found.items():
        _check_free(key, text)
    return found


def _annotations(value: Any) -> dict[str, str]:
    pairs = _pairs(value)
    for key, text in pairs.items():
        _check_key(key, text)
        _check_free(key, text)
        if not isinstance(text, str) or len(text) > MOST_ANNOTATION or "\0" in text:
            raise Wrong(f"must be text of at most {MOST_ANNOTATION} characters; quote numbers", at=key, value=text)
    if sum(len(key) + len(text) for key, text in pairs.items()) > MOST_ANNOTATIONS:
        raise Wrong(f"have more than {MOST_ANNOTATIONS} characters together; remove some")
    return dict(pairs)


def _tolerations(value: Any) -> list[dict[str, Any]]:
    """Take each as an object of Kubernetes, or as a taint is written: `key`, `key=value`, with `:NoSchedule` behind it."""
    items = [value] if isinstance(value, str | Mapping) else value
    if not isinstance(items, list | tuple) or len(items) > MOST:
        raise Wrong(f'must be a list of at most {MOST} taints, such as ["gpu=true:NoSchedule"]')
    found = []
    for number, one in enumerate(items):
        try:
            found.append(_of_text(one) if isinstance(one, str) else _of_object(one))
        except Wrong as error:
            raise Wrong(str(error), at=error.at or str(number), value=_short(one)) from error
    return found


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _of_text(text: str) -> dict[str, Any]:
    taint, colon, effect = text.strip().partition(":")
    key, equals, value = taint.partition("=")
    found = {"key": key, "operator": "Equal" if equals else "Exists", **({"value": value} if equals else {})}
    return _of_object({**found, **({"effect": effect} if colon else {})})


def _of_object(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not all(
        name in _TOLERATION and type(value) is _TOLERATION[name] for name, value in given.items()
    ):
        raise Wrong(f"is no toleration; use {', '.join(_TOLERATION)}, or text such as gpu=true:NoSchedule")
    if str(given.get("key", "")).startswith(_OWN_TAINTS):
        raise Wrong("is a taint by which the cluster keeps jobs off nodes of its own, or off broken ones; remove it")
    if not given.get("key"):
        raise Wrong("has no key; a job tolerates the taints that it names, not all of them")
    _check_label(given["key"], given.get("value", ""))
    if given.get("operator", "Equal") not in ("Equal", "Exists"):
        raise Wrong("has an unknown operator; use Equal or Exists")
    if given.get("operator") == "Exists" and given.get("value"):
        raise Wrong("has a value, which Exists does not compare; remove it, or use Equal")
    if given.get("effect") and given["effect"] not in _EFFECTS:
        raise Wrong(f"has an unknown effect; use {', '.join(_EFFECTS)}, or none for all of them")
    seconds = given.get("tolerationSeconds")
    if seconds is not None and (given.get("effect") != "NoExecute" or not 0 <= seconds <= MOST_SECONDS):
        raise Wrong(
            f"has tolerationSeconds, which only the effect NoExecute has, and which are from 0 to {MOST_SECONDS}"
        )
    return dict(given)


def _priority_class(value: Any) -> str:
    if not isinstance(value, str) or not _DNS.match(value):
        raise Wrong("is not the name of a priority class; use a-z, 0-9, - and .")
    if value.startswith("system-"):
        raise Wrong("is kept for the cluster's own pods; choose another priority class")
    return value


def _service_account(value: Any) -> str:
    if not isinstance(value, str) or not _DNS.match(value):
        raise Wrong("is not the name of a service account; use a-z, 0-9, - and .")
    return value


def _working_dir(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value.encode()) > MOST_PATH:
        raise Wrong(f"must be a path of at most {MOST_PATH} bytes, such as examples/mnist")
    if ".." in value.split("/"):
        raise Wrong("leads out of the job's code; write it without ..")
    return value.rstrip("/") or "/"


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "image": _image,
    "cpu": _amount(quantities.CPU),
    "memory": _amount(quantities.MEMORY),
    "shm": _amount(quantities.MEMORY),
    "node_selector": _node_selector,
    "tolerations": _tolerations,
    "priority_class": _priority_class,
    "service_account": _service_account,
    "labels": _labels,
    "annotations": _annotations,
    "working_dir": _working_dir,
}
NAMES: tuple[str, ...] = tuple(_READERS)


def taint(toleration: Mapping[str, Any]) -> str:
    """Return a taint, or the one that a toleration names, as it is written: gpu=true:NoSchedule."""
    key = str(toleration.get("key") or "every taint")
    value = f"={toleration['value']}" if toleration.get("value") else ""
    return key + value + (f":{toleration['effect']}" if toleration.get("effect") else "")


def written(toleration: Mapping[str, Any]) -> str:
    """Return a toleration as its taint is written, or as an object where that would say something else."""
    text = taint(toleration)
    with contextlib.suppress(Wrong):
        if _of_text(text) == toleration:
            return text
    return json.dumps(toleration)


def without_effect(given: Iterable[str]) -> list[str]:
    """Return those of the given fields that mean nothing where replicas are processes of a machine, not pods."""
    return [name for name in NAMES if name in set(given) and name != "working_dir"]
