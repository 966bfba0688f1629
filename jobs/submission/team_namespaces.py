"""Move a team to a namespace of its own: what the namespace must have first, and who would lose what.

Nothing of a team's data moves by itself. So a move is refused while the new namespace lacks a right of Muster's, or a
claim that a volume, a queue's template or an unfinished job names; each refusal has the line that mends it.
"""

import re
from collections.abc import Iterator

from accounts.models import Team, User
from accounts.permissions import require_platform_admin
from common.errors import ClusterError, Conflict, InvalidInput, Problem
from jobs import clusters
from jobs.clusters import Claims, Inspects, Keeps, MakesNamespaces
from jobs.core import pod_rights
from jobs.core.lifecycle import TERMINAL
from jobs.core.plan import Claim
from jobs.models import Job
from queues import namespaces
from queues.models import Queue, TeamNamespace
from volumes.models import State, Volume

from .pods import document_of

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
CLAIM = "claim"  # as pod_rights.named calls it


def bind(*, team: Team, cluster: str, namespace: str, by: User | None, make: bool = False) -> TeamNamespace:
    """Have the team's jobs made in this namespace from the next one on. Those that are not finished stay where they are.

    With `make` the namespace is made first, and stays if the team cannot move there yet. Raises NotAllowed, InvalidInput
    with everything that is missing, and Conflict.
    """
    _need_admin(by)
    _need_pods(cluster)
    home = clusters.namespace_of(cluster)
    if not NAME.fullmatch(namespace):
        raise _wrong(namespace, "must be the name of a namespace: a-z, 0-9 and -")
    if namespace == home:
        raise _wrong(namespace, "is the one that teams without their own share; take the team's own away instead")
    if namespaces.of(team, cluster) == namespace:
        raise Conflict(f"namespace {namespace} of cluster {cluster} is team {team.name}'s already")
    if other := TeamNamespace.objects.filter(cluster=cluster, namespace=namespace, ended_at=None).first():
        raise _wrong(namespace, f"belongs to team {other.team.name}; a namespace has one team")
    if left := _others_there(team, cluster, namespace):
        raise _wrong(namespace, f"still has jobs of other teams: {', '.join(map(str, left))}; wait for their end")
    if before := namespaces.former(cluster, namespace, team=team):
        words = (
            f"was that of team {before.team.name}, whose claims, Secrets and policies may still be in it; give team "
            f"{team.name} another one"
        )
        raise _wrong(namespace, words)
    if make:
        _make(cluster, namespace)
    if problems := list(_missing(team, cluster, namespace)):
        raise InvalidInput(*(Problem("namespace", namespace, words) for words in problems))
    return namespaces.bind(team=team, cluster=cluster, namespace=namespace, by=by)


def release(*, team: Team, cluster: str, by: User | None) -> None:
    """Have the team's jobs made in the cluster's own namespace again, from the next one on. Raises as `bind`."""
    _need_admin(by)
    _need_pods(cluster)
    if not namespaces.of(team, cluster):
        raise Conflict(f"team {team.name} has no namespace of its own on cluster {cluster}")
    home = clusters.namespace_of(cluster)
    if problems := list(_missing(team, cluster, home)):
        raise InvalidInput(*(Problem("namespace", home, words) for words in problems))
    namespaces.release(team=team, cluster=cluster, by=by)


def _make(cluster: str, namespace: str) -> None:
    adapter = clusters.get(cluster)
    if not isinstance(adapter, MakesNamespaces):
        raise _wrong(namespace, f"cannot be made: cluster {cluster} has no namespaces that Muster makes")
    try:
        adapter.make_namespace(namespace)
    except ClusterError as error:
        raise _wrong(namespace, f"cannot be made: {error}") from error


def _missing(team: Team, cluster: str, namespace: str) -> Iterator[str]:
    """Yield what the namespace lacks, each with the way to it. Raises InvalidInput where the cluster does not answer."""
    adapter = clusters.get(cluster)
    try:
        if isinstance(adapter, Inspects):
            for one in adapter.inspect_rights(namespace):
                if one.state == "wrong":
                    yield f"cannot be used: {one.words}; {one.who} types: {one.remedy}"
        if isinstance(adapter, Claims):
            now = namespaces.of(team, cluster) or clusters.namespace_of(cluster)
            for name, user in sorted(_claims(team, cluster).items()):
                if not adapter.see_claim(Claim(name, namespace=namespace)).state:
                    yield (
                        f"lacks claim {name}, which {user} mounts; to take it there with its data: "
                        f"deploy/move-claim.sh {now} {name} {namespace}"
                    )
    except ClusterError as error:
        raise _wrong(namespace, f"cannot be looked at: {error}") from error


def _claims(team: Team, cluster: str) -> dict[str, str]:
    """Return the claims that the team's jobs there mount, each with one thing that mounts it."""
    adapter, found = clusters.get(cluster), dict[str, str]()
    if isinstance(adapter, Keeps) and (folders := adapter.job_folders()):
        found[folders.claim] = "every job (JOB_CLAIM)"
    if isinstance(adapter, Claims):
        found |= dict.fromkeys(adapter.claims_of_options(team.name), "its entry in CLAIMS")
    for volume in Volume.objects.filter(team=team, cluster=cluster):
        if volume.claim or volume.state != State.UNUSED:
            found[volume.claim_name] = f"volume {volume.name}"
    for queue in Queue.objects.filter(team=team, cluster=cluster):
        found |= _named(queue.template, f"the template of queue {queue.name}")
    open_jobs = Job.objects.filter(team=team, queue__cluster=cluster).exclude(phase__in=TERMINAL)
    for job in open_jobs.select_related("template"):
        found |= _named(document_of(job), f"job {job.pk}")
    return found


def _named(template: object, user: str) -> dict[str, str]:
    document = template if isinstance(template, dict) else {}
    return {one.name: user for one in pod_rights.named(document) if one.kind == CLAIM}


def _others_there(team: Team, cluster: str, namespace: str) -> list[int]:
    """Return unfinished jobs of other teams whose attempts were made in this namespace."""
    jobs = Job.objects.filter(attempts__cluster=cluster, attempts__namespace=namespace).exclude(phase__in=TERMINAL)
    return list(jobs.exclude(team=team).order_by("pk").values_list("pk", flat=True).distinct()[:5])


def _need_admin(by: User | None) -> None:
    if by is not None:
        require_platform_admin(by, "give namespaces to teams")


def _need_pods(cluster: str) -> None:
    if not clusters.backend(cluster).MAKES_PODS:
        words = "starts processes of one machine and has no namespaces"
        raise InvalidInput(Problem("cluster", cluster, words))


def _wrong(namespace: str, words: str) -> InvalidInput:
    return InvalidInput(Problem("namespace", namespace, words))
