"""Read a cluster's OPTIONS from settings.CLUSTERS strictly: every problem names the option and how to fix it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from common.errors import InvalidInput, Problem
from common.http.public_addresses import Network
from jobs.core.egress import INTERNET, network
from queues.shape import ReplicaShape, merge

from .site import Site

_NAMESPACE = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_ADDRESS = re.compile(r"^https?://[^/\s]+")
_PLACES = ("namespace", "image", "control_url")  # without these no pod can be described
_SHAPE = (
    "image", "pull_policy", "pull_secrets", "requests", "limits", "shm", "node_selector", "tolerations", "scheduler",
    "priority_class", "labels", "annotations",
)  # fmt: skip
_FIELDS = {one.name: str(one.type) for one in fields(Site) if one.name != "shape"} | {
    one.name: str(one.type) for one in fields(ReplicaShape) if one.name in _SHAPE
}
# An option is the field's name in capitals, like all settings.
_OPTIONS = {name: name.upper() for name in _FIELDS} | {"shm": "MEMORY_LIMIT"}
KNOWN = frozenset({"KUBECONFIG", "CONTEXT", *_OPTIONS.values()})
_USUAL = ReplicaShape(pull_policy="IfNotPresent")


@dataclass(frozen=True)
class ApiAccess:
    """How the API server is reached. Without a kubeconfig: the service account of the pod we run in.

    `content` is a kubeconfig itself instead of its path. Where `networks` is given, the server must be on the public
    internet or in one of these networks, and is reached without a proxy.
    """

    kubeconfig: str = ""
    context: str = ""
    content: Mapping[str, Any] | None = None
    networks: tuple[Network, ...] | None = None


def read(options: Mapping[str, Any]) -> tuple[ApiAccess, Site]:
    """Return access and site. Raises InvalidInput with every problem at once."""
    problems = [
        Problem(f"OPTIONS.{name}", options[name], f"is not a known option; known are {', '.join(sorted(KNOWN))}")
        for name in sorted(set(options) - KNOWN)
    ]
    values = {word: options[option] for word, option in _OPTIONS.items() if option in options}
    for word in sorted({*values, *_PLACES}):
        if word in _PLACES and not values.get(word):
            problems.append(Problem(f"OPTIONS.{_OPTIONS[word]}", values.get(word), "must be given"))
        else:
            problems += _problems(word, values[word])
    if problems:
        raise InvalidInput(*problems)
    given = _frozen(values)
    shape = merge(_USUAL, ReplicaShape(**{name: given.pop(name) for name in _SHAPE if name in given}))
    return ApiAccess(str(options.get("KUBECONFIG", "")), str(options.get("CONTEXT", ""))), Site(shape=shape, **given)


def _problems(word: str, value: Any) -> list[Problem]:
    """Return one problem if the option has the wrong type or form."""
    kind = _FIELDS[word]
    complaint = next((wanted for part, fits, wanted in _KINDS if part in kind and not fits(value)), "")
    if not complaint and word in _FORMS:
        form, wanted = _FORMS[word]
        complaint = "" if re.match(form, value) else wanted
    if not complaint and word in ("egress", "egress_allowed"):
        others = (INTERNET,) if word == "egress_allowed" else ()
        is_right = all(one in others or network(one) is not None for one in value)
        complaint = "" if is_right else 'must be a list of networks, such as ["10.0.0.0/8"]'
    return [Problem(f"OPTIONS.{_OPTIONS[word]}", value, complaint)] if complaint else []


def _is_text_map(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(one, str) for pair in value.items() for one in pair)


# By the field's type as text: the check, and the complaint if it fails.
_KINDS = (
    ("Mapping[str, str]", _is_text_map, 'must map text to text, such as {"cpu": "4"}'),
    ("tuple", lambda value: isinstance(value, list | tuple), "must be a list"),
    ("'bool'", lambda value: isinstance(value, bool), "must be true or false"),
    ("'str'", lambda value: isinstance(value, str), "must be text"),
    ("'int'", lambda value: type(value) is int and value > 0, "must be a whole number above 0"),
)
_FORMS = {
    "namespace": (_NAMESPACE, "must be the name of a namespace: a-z, 0-9 and -"),
    "control_url": (
        _ADDRESS,
        "must be the address at which pods reach the control plane, such as https://muster.example",
    ),
}


def _frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    return {word: tuple(value) if isinstance(value, list) else value for word, value in values.items()}
