"""What a queue's template says of the pods of its jobs: of a submitted one by the version that it has, and today."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from accounts.models import User
from accounts.permissions import is_platform_admin
from common.errors import InvalidInput, InvalidSpec, Problem
from jobs import clusters, frameworks
from jobs.clusters import Isolates
from jobs.core import egress, pod_rights, pod_template
from jobs.core.plan import Role
from jobs.core.spec import JobSpec, parse
from jobs.models import Job
from queues import allowed, namespaces, templates
from queues.models import AllowedObject, Queue
from queues.shape import ReplicaShape
from volumes.models import AccessMode

from . import claims

Layer = Callable[[Role], ReplicaShape]


def roles_in(queue: Queue, spec: JobSpec) -> tuple[Role, ...]:
    """Return the roles of a job that is submitted to this queue now."""
    return frameworks.roles(spec, below=layer_of(templates.content(queue)))


def roles_of(job: Job) -> tuple[Role, ...]:
    """Return the roles of a submitted job, with the version of its queue that it was submitted to."""
    return frameworks.roles(job.job_spec, below=layer_of(job.template.content if job.template else {}))


def usual_spec(content: Mapping[str, Any]) -> JobSpec:
    """Return the job that a version of a queue is looked at with: one node, which it takes whole. Raises InvalidInput."""
    defaults = {
        name: value for name, value in content["defaults"].items() if name not in ("nodes", "gpus", "framework")
    }
    per_node = int(content["gpus_per_node"]) or 1
    sent = {"command": ["torchrun", "train.py"], "framework": "torchrun", "nodes": 1, "nproc_per_node": per_node}
    return parse(sent, defaults=defaults, options=frameworks.OPTIONS)


def document_of(job: Job) -> Mapping[str, Any]:
    """Return the template that a submitted job has of its queue; empty where there was none."""
    return job.template.content["template"] if job.template else {}


def levels_of(job: Job) -> list[str]:
    """Return the labels of nodes whose values the job's replicas share; most templates name none."""
    return list(dict.fromkeys(document_of(job).get("topology", {}).values()))


def node_slots(job: Job) -> int:
    """Return how many devices a node of the job's queue has, as the job was submitted."""
    return int(job.template.content["gpus_per_node"]) if job.template else job.queue.gpus_per_node


def refusals(queue: Queue, spec: JobSpec, document: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for each object of the cluster that the job's pods may not name."""
    wanted = [(f"template.{one.path}", one.kind, one.name) for one in pod_rights.named(document)]
    accounts = {"service_account": spec.service_account} | {
        f"roles.{role}.service_account": given.get("service_account", "") for role, given in spec.roles.items()
    }
    wanted += [(field, AllowedObject.Kind.SERVICE_ACCOUNT, name) for field, name in accounts.items() if name]
    return allowed.problems(wanted, team=queue.team, cluster=queue.cluster)


def token_accounts(job: Job) -> frozenset[str]:
    """Return the service accounts whose token the job's pods may have."""
    return allowed.names(team=job.team, cluster=job.queue.cluster)[AllowedObject.Kind.TOKEN]


def checked(queue: Queue, document: Any, *, by: User | None) -> dict[str, Any]:
    """Return a template as it is stored. `by` None is the server's own command line.

    Raises InvalidInput with every problem: what is malformed, names objects that the team may not, or gives pods more of
    their node than an administrator of a team can.
    """
    problems: list[Problem] = []
    found = pod_template.parse(document, problems)
    if found and not clusters.backend(queue.cluster).MAKES_PODS:
        words = f"has no meaning on cluster {queue.cluster}, which starts processes of one machine; remove it"
        problems.append(Problem("template", None, words))
    if problems:
        raise InvalidInput(*problems)
    problems += _egress_problems(queue, found.get("egress", []))
    wanted = [(one.path, one.kind, one.name) for one in pod_rights.named(found)]
    problems += allowed.problems(wanted, team=queue.team, cluster=queue.cluster)
    problems += [
        Problem(f"storage.{kind}.storage_class", one.storage_class or None, words)
        for kind, one in pod_template.storage(found, slots=1).items()
        if (words := claims.complaint(queue.cluster, one.storage_class, access_mode=AccessMode.RWX))
    ]
    if by is not None and not is_platform_admin(by):
        # What a platform administrator has put there may stay, as it is, also at another place of its list.
        there = [(_unnumbered(path), value) for path, value in pod_rights.privileges(queue.template).items()]
        problems += [
            Problem(path, None, "gives pods more of their node than they need; a platform administrator can set it")
            for path, value in pod_rights.privileges(found).items()
            if (_unnumbered(path), value) not in there
        ]
    if problems:
        raise InvalidInput(*problems)
    return found


def _egress_problems(queue: Queue, wanted: list[str]) -> list[Problem]:
    if not wanted:
        return []
    cluster = clusters.get(queue.cluster)
    allowed_here = cluster.egress_allowed if isinstance(cluster, Isolates) else ()
    listed = ", ".join(allowed_here) or "none"
    words = f"is not within what may be reached from cluster {queue.cluster}: {listed}; a platform administrator sets EGRESS_ALLOWED"
    return [Problem("egress", one, words) for one in egress.beyond(wanted, allowed_here)]


def closed(queue: Queue, env: Mapping[str, str]) -> str:
    """Return which variables of a job call what its pods cannot reach; empty where nothing shows that."""
    cluster = clusters.get(queue.cluster)
    if not isinstance(cluster, Isolates):
        return ""
    theirs = cluster.egress if cluster.egress is not None else () if namespaces.of(queue.team, queue.cluster) else None
    if theirs is None or not (found := egress.closed(env, [*theirs, *queue.template.get("egress", [])])):
        return ""
    return f"pods of queue {queue.name} cannot reach what {', '.join(found)} is for: the queue's template opens networks with `egress`"


def _unnumbered(path: str) -> str:
    return re.sub(r"\.[0-9]+", "", path)


def layer_of(content: Mapping[str, Any]) -> Layer | None:
    """Return what a version of a queue says of each role's pods, for `frameworks.roles`; None if it says nothing."""
    selector = content.get("node_selector")
    if not content.get("template") and not selector:
        return None
    layer = partial(
        pod_template.layer, content.get("template") or {}, gpus_per_node=int(content.get("gpus_per_node") or 0)
    )
    return (lambda role: replace(layer(role), node_selector=selector)) if selector else layer


def refuse_other_nodes(queue: Queue, spec: JobSpec) -> None:
    """Raise InvalidSpec for a job that asks for nodes other than those of its queue's flavor."""
    selector = queue.flavor.node_selector if queue.flavor_id is not None and queue.flavor else {}
    given = [("node_selector", spec.node_selector)]
    given += [(f"roles.{role}.node_selector", one.get("node_selector", {})) for role, one in spec.roles.items()]
    problems = [
        Problem(
            f"{field}.{key}",
            value,
            f"is {selector[key]} for every job of queue {queue.name}, by its flavor; remove it, here or from the queue's defaults",
        )
        for field, asked in given
        for key, value in asked.items()
        if selector.get(key, value) != value
    ]
    if problems:
        raise InvalidSpec(*problems)


def refuse_locked(queue: Queue, sent: Mapping[str, Any]) -> None:
    """Raise InvalidSpec for fields that the queue keeps for itself."""
    if found := pod_template.refuse_locked(queue.template, sent, queue.defaults, queue.name):
        raise InvalidSpec(*found)
