"""One module in this package is one framework, unless its name begins with an underscore.

A module provides what `Framework` lists; of the control plane nothing else is edited to add one (docs/extending.md): parser, form, API, OpenAPI and
contract tests enumerate `REGISTRY`.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from common.errors import InvalidInput, InvalidSpec, Problem
from jobs.core import pod_fields
from jobs.core.fields import FIELDS, Field
from jobs.core.plan import Role
from jobs.core.spec import JobSpec, parse
from queues.shape import ReplicaShape, conflicts, merge


class Framework(Protocol):
    NAME: str
    LABEL: str
    PER_NODE: str  # what `nproc_per_node` counts, as the form's label
    FIELDS: tuple[Field, ...]  # its own, beside those of every job; values are `spec.options`
    RESERVED_ENV: frozenset[str]  # variables that it sets itself
    STOPPING: str  # what a stop asks of its processes: a sentence for those who suspend a job
    KEY_ENV: str  # a variable with a key that only the replicas of one attempt have; "" if it needs none

    def resolve(self, spec: JobSpec, given: frozenset[str]) -> JobSpec:
        """Return the spec completed from the command itself; `given` names the fields that the user set."""

    def problems(self, spec: JobSpec) -> list[Problem]: ...

    def listens(self, spec: JobSpec) -> str:
        """Return a description of its ports that are open to others than its ranks; empty if there are none."""

    def takes_code(self, spec: JobSpec) -> tuple[str, object] | None:
        """Return the field, and its value, that makes the job run code sent to its ports; None if nothing does."""

    def more_ranks(self, count: int) -> str:
        """Return what to change so that a replica may start this many ranks: the end of a sentence."""

    def roles(self, spec: JobSpec) -> tuple[Role, ...]:
        """Return what runs, made by `jobs.core.plan.numbered`. Deterministic: each launch of a job asks again."""


def _load() -> Mapping[str, Framework]:
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
        if not found.name.startswith("_")
    )
    return {module.NAME: module for module in modules}


REGISTRY: Mapping[str, Framework] = _load()
# Each framework's own fields by name.
OPTIONS: Mapping[str, Mapping[str, Field]] = {
    name: {field.name: field for field in framework.FIELDS} for name, framework in REGISTRY.items()
}


# What a job cannot take from its queue: its own name and command, and what is encrypted or given by a user each time.
NO_DEFAULT = frozenset({"name", "command", "secrets", "env", "from_job", "from_step"})


def get(name: str) -> Framework:
    """Return a framework. Raises InvalidSpec for any other name, also where it is no text: users send it."""
    if not isinstance(name, str) or name not in REGISTRY:
        raise InvalidSpec(Problem("framework", name, f"is unknown; choose one of {', '.join(sorted(REGISTRY))}"))
    return REGISTRY[name]


def check(spec: JobSpec, given: frozenset[str]) -> JobSpec:
    """Return the resolved spec. Raises InvalidSpec with every problem its framework finds."""
    framework = get(spec.framework)
    spec = framework.resolve(spec, given)
    words = f"is set by {framework.LABEL} itself; choose another name"
    found = [Problem(f"env.{name}", spec.env[name], words) for name in sorted(framework.RESERVED_ENV & set(spec.env))]
    found += [Problem(f"secrets.{name}", None, words) for name in sorted(framework.RESERVED_ENV & set(spec.secrets))]
    found += framework.problems(spec)
    if not found:
        known = [role.name for role in framework.roles(spec)]
        has = f"it has {' and '.join(known)}" if len(known) < 3 else f"it has {', '.join(known)}"
        found = [
            Problem(f"roles.{name}", name, f"is no role of this job; {has}")
            for name in sorted(set(spec.roles) - set(known))
        ]
        found += [
            Problem(
                f"roles.{name}.node_selector.{key}",
                wanted,
                f"is {given} for all roles of this job; remove one of the two",
            )
            for name, own in spec.roles.items()
            for key, (wanted, given) in conflicts(pod_fields.shape(spec.pod), pod_fields.shape(own)).items()
        ]
    if found:
        raise InvalidSpec(*found)
    return spec


def roles(spec: JobSpec, *, below: Callable[[Role], ReplicaShape] | None = None) -> tuple[Role, ...]:
    """Return what runs, each role with all that the job says of its pods: for every role, and for this one.

    `below` returns what the job's queue says of a role's pods.
    """
    everywhere = pod_fields.shape(spec.pod)

    def shape(role: Role) -> ReplicaShape:
        own = pod_fields.shape(spec.roles.get(role.name, {}))
        return merge(*([below(role)] if below else []), everywhere, role.shape, own)

    return tuple(replace(role, shape=shape(role)) for role in get(spec.framework).roles(spec))


def default(name: str, value: Any) -> Any:
    """Return a queue's default of a field as a job would have it. Raises InvalidInput for an unknown field or a wrong value."""
    theirs = [framework for framework, own in OPTIONS.items() if name in own]
    if name in NO_DEFAULT or not (name in FIELDS or theirs):
        known = sorted({*FIELDS, *(one for own in OPTIONS.values() for one in own)} - NO_DEFAULT)
        raise InvalidInput(
            Problem(name, value, f"is not a field that a queue can give its jobs; known are {', '.join(known)}")
        )
    sent = {"command": ["true"], **({"framework": theirs[0]} if theirs else {}), name: value}
    try:
        spec = parse(sent, options=OPTIONS)
        get(spec.framework)
    except InvalidSpec as error:
        mine = [problem for problem in error.problems if problem.field.partition(".")[0] == name]
        if mine:
            raise InvalidInput(*mine) from error
        return value  # complete only together with other fields, such as retry_on with max_retries
    found = spec.options[name] if theirs else getattr(spec, name, value)
    return list(found) if isinstance(found, tuple) else found
