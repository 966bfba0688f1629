"""Clusters that platform administrators add beside those of MUSTER_CLUSTERS: tried first, sealed, without a restart.

Each change is tried with the cluster itself before it is stored: what is refused, or does not answer, is not stored.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from accounts.models import User
from accounts.permissions import require_platform_admin
from common.errors import ClusterError, Conflict, InvalidInput, Problem
from common.text import listed
from jobs import clusters
from jobs.clusters.kubernetes.build import kubeconfig as kubeconfigs
from jobs.clusters.kubernetes.build.kubeconfig import Kubeconfig
from jobs.clusters.kubernetes.build.options import read as read_options
from jobs.core.lifecycle import TERMINAL
from jobs.models import Attempt
from queues import added
from queues import clusters as entries
from queues.models import AddedCluster, Queue
from volumes.models import Volume

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
SHOWN = 5  # names in a sentence
MOST_OPTIONS = 64 * 1024  # characters, as JSON
ACCESS = ("KUBECONFIG", "CONTEXT")  # of the setting only


def add(
    *, by: User | None, name: str, options: Mapping[str, Any], kubeconfig: str = "", context: str = "",
    in_cluster: bool = False,
) -> AddedCluster:  # fmt: skip
    """Add a cluster, by a kubeconfig or by the account of the pods that Muster itself runs in.

    Raises NotAllowed, InvalidInput with every problem that shows before the cluster is asked, or with the one that the
    cluster shows, and Conflict.
    """
    _need_admin(by, "add clusters")
    problems = _problems_of_name(name) + _problems_of_options(options)
    access = _access(kubeconfig, context, problems)
    if in_cluster == bool(kubeconfig):
        problems.append(Problem("kubeconfig", None, "must be given, or in_cluster be true, and not both"))
    if problems:
        raise InvalidInput(*problems)
    identity = _tried(name, options, access)
    row = AddedCluster(
        name=name, server=access.server if access else "", sealed=entries.seal(access.content) if access else "",
        identity=identity, options=dict(options),
    )  # fmt: skip
    added.add(row, by=by)
    return row


def change(
    *, by: User | None, row: AddedCluster, version: int, options: Mapping[str, Any] | None = None,
    kubeconfig: str = "", context: str = "",
) -> AddedCluster:  # fmt: skip
    """Replace the options, the credentials, or both. `version` is the one that the change was made of.

    Raises as `add`; Conflict, with what is different now, where somebody else changed it meanwhile.
    """
    _need_admin(by, "change clusters")
    added.need_version(row, version)
    problems = _problems_of_options(options) if options is not None else []
    access = _access(kubeconfig, context, problems)
    if problems:
        raise InvalidInput(*problems)
    wanted = dict(options) if options is not None else row.options
    identity = _tried(row.name, wanted, access, row=row) if access or wanted != row.options else row.identity
    is_other = access is not None and access.server != row.server and identity != row.identity
    if is_other and (jobs := _unfinished(row.name)):
        words = (
            f"leads to another cluster, and jobs of this one are not finished: {jobs}; add it under a name of its own"
        )
        raise InvalidInput(Problem("kubeconfig", None, words))
    credentials = {"server": access.server, "sealed": entries.seal(access.content)} if access else {}
    return added.change(row, by=by, version=version, options=wanted, identity=identity, **credentials)


def remove(*, by: User | None, row: AddedCluster) -> None:
    """Forget a cluster and its credentials. Raises NotAllowed, and Conflict naming what still needs it."""
    _need_admin(by, "remove clusters")
    if row.name not in settings.CLUSTERS and (users := _users(row.name)):
        raise Conflict(f"cluster {row.name} is still used by {'; '.join(users)}")
    added.remove(row, by=by)


def _users(name: str) -> list[str]:
    """Return in words what would break without a cluster."""
    queues = list(Queue.objects.filter(cluster=name).order_by("name").values_list("name", flat=True))
    volumes = list(Volume.objects.filter(cluster=name).order_by("name").values_list("team__name", "name"))
    jobs = _unfinished(name)
    return [
        *([f"queues {listed(queues, SHOWN)}"] if queues else []),
        *([f"volumes {listed([f'{team}/{one}' for team, one in volumes], SHOWN)}"] if volumes else []),
        *([f"jobs that are not finished: {jobs}"] if jobs else []),
    ]


def _unfinished(name: str) -> str:
    """Return the jobs in words that have attempts on a cluster and are not finished; empty if there are none."""
    running = Attempt.objects.filter(cluster=name).exclude(job__phase__in=TERMINAL)
    jobs = sorted(set(running.order_by("job_id").values_list("job_id", flat=True)))
    return listed([str(one) for one in jobs], SHOWN)


def _access(text: str, context: str, problems: list[Problem]) -> Kubeconfig | None:
    """Return what is taken of a kubeconfig, None without one; adds to `problems`."""
    if not text:
        return None
    try:
        return kubeconfigs.read(text, context=context, now=timezone.now())
    except InvalidInput as error:
        problems += error.problems
        return None


def _need_admin(by: User | None, act: str) -> None:
    if by is not None:
        require_platform_admin(by, act)


def _problems_of_name(name: str) -> list[Problem]:
    if not NAME.fullmatch(name):
        return [Problem("name", name, "is not valid; use up to 40 of a-z, 0-9 and -, a letter or digit first and last")]
    if name in settings.CLUSTERS:
        return [Problem("name", name, "is a cluster of MUSTER_CLUSTERS, which wins; choose another name")]
    if AddedCluster.objects.filter(name=name).exists():
        return [Problem("name", name, "is taken by a cluster that was added before; choose another name")]
    return []


def _problems_of_options(options: Mapping[str, Any]) -> list[Problem]:
    if len(json.dumps(dict(options))) > MOST_OPTIONS:
        return [Problem("options", None, f"has more than {MOST_OPTIONS // 1024} KiB; shorten it")]
    problems = [
        Problem(f"options.{name}", None, "is of MUSTER_CLUSTERS only; here the kubeconfig itself is sent")
        for name in ACCESS
        if name in options
    ]
    try:
        read_options({name: value for name, value in options.items() if name not in ACCESS})
    except InvalidInput as error:
        problems += [
            Problem(one.field.replace("OPTIONS.", "options.", 1), one.value, one.message) for one in error.problems
        ]
    return problems


def _tried(name: str, options: Mapping[str, Any], access: Kubeconfig | None, *, row: AddedCluster | None = None) -> str:
    """Ask the cluster who it is, and return that. Raises InvalidInput where it is none, and Conflict for a second entry."""
    content: Any = access.content if access else (entries.unseal(row.sealed, name=name) if row and row.sealed else None)
    cluster = import_string(entries.KUBERNETES)(
        **options, kubeconfig=content, networks=tuple(settings.MUSTER_CLUSTER_NETWORKS)
    )
    try:
        for one in cluster.inspect():
            if one.about in ("server", "version") and one.state == "wrong":
                raise InvalidInput(Problem("kubeconfig", None, f"does not lead to a cluster: {one.words}"))
        identity: str = cluster.identity()
    except ClusterError as error:
        raise InvalidInput(Problem("kubeconfig", None, f"does not lead to a cluster: {error}")) from error
    finally:
        cluster.close()
    server = access.server if access else (row.server if row else "")
    if twin := _twin(name, str(options.get("NAMESPACE")), server=server, identity=identity):
        raise Conflict(f"cluster {twin} is this cluster with the same namespace already; use it, or another NAMESPACE")
    return identity


def _twin(name: str, namespace: str, *, server: str, identity: str) -> str:
    """Return the name of another entry that leads to the same namespace of the same cluster."""
    for one in entries.entries().values():
        if one.name == name or one.options.get("NAMESPACE") != namespace:
            continue
        if server and one.server == server:
            return one.name
        if identity and _identity_of(one.name) == identity:
            return one.name
    return ""


def _identity_of(name: str) -> str:
    try:
        adapter = clusters.get(name)
        return adapter.identity() if isinstance(adapter, clusters.Inspects) else ""
    except Exception:  # it cannot be asked today, or its options are wrong, which its own check tells
        return ""
