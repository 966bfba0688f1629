"""One module in this package is one framework, unless its name begins with an underscore.

A module provides what `Framework` lists; of the control plane nothing else is edited to add one (docs/extending.md): parser, form, API, OpenAPI and
contract tests enumerate `REGISTRY`.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from common.errors import InvalidSpec, Problem
from jobs.core import pod_fields
from jobs.core.fields import Field
from jobs.core.plan import Role
from jobs.core.spec import JobSpec
from queues.shape import merge


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


def get(name: str) -> Framework:
    if name not in REGISTRY:
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
        words = f"is no role of this job; known are {', '.join(known)}"
        found = [Problem(f"roles.{name}", None, words) for name in sorted(set(spec.roles) - set(known))]
    if found:
        raise InvalidSpec(*found)
    return spec


def roles(spec: JobSpec) -> tuple[Role, ...]:
    """Return what runs, each role with all that the job says of its pods: for every role, and for this one."""
    everywhere = pod_fields.shape(spec.pod)
    return tuple(
        replace(role, shape=merge(everywhere, role.shape, pod_fields.shape(spec.roles.get(role.name, {}))))
        for role in get(spec.framework).roles(spec)
    )
