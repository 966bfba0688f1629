"""The volumes that a job names: which of its team's they are, what its cluster can do with them, and how they are mounted."""

from collections.abc import Iterable, Mapping
from typing import Any

from common.errors import InvalidInput, Problem, Refused
from jobs import clusters
from jobs.core import checkpoints, pod_template
from jobs.core import volumes as entries
from jobs.core.plan import Claim, Role, StartFrom, slots_of
from jobs.core.spec import JobSpec
from jobs.models import Checkpoint, Job
from queues import namespaces
from queues.models import Queue
from volumes import services as volumes
from volumes.models import AccessMode, JobStorage, State, Volume

from . import claims
from .pods import document_of


def refusals(queue: Queue, spec: JobSpec, roles: Iterable[Role]) -> list[Problem]:
    """Return a problem for each volume of the team that the job cannot mount where it would run."""
    replicas = sum(role.replicas for role in roles)
    rows = volumes.named([*entries.mounts(spec.volumes)], team=queue.team)
    found = _at_one_path(spec, rows) if clusters.backend(queue.cluster).MOUNTS else []
    for name, row in rows.items():
        if row.cluster != queue.cluster:
            words = f"is on cluster {row.cluster}, and queue {queue.name} runs its jobs on {queue.cluster}; choose another queue"
            found.append(Problem("volumes", name, words))
        elif row.removal_asked_at is not None:
            found.append(Problem("volumes", name, "is being deleted"))
        elif row.access_mode == AccessMode.RWO and replicas > 1 and clusters.backend(queue.cluster).MOUNTS:
            words = f"is {row.access_mode}: one node mounts it, and the job has {replicas} replicas; use a {AccessMode.RWX} volume"
            found.append(Problem("volumes", name, words))
    return found


def _at_one_path(spec: JobSpec, rows: Mapping[str, Volume]) -> list[Problem]:
    """Return a problem for each volume that would be mounted where another one is, by its own path or the job's."""
    taken, found = dict[str, str](), []
    for name, path in entries.mounts(spec.volumes).items():
        place = (path or (rows[name].mount_path if name in rows else "")).rstrip("/")
        if place and place in taken:
            words = f"is mounted at {place}, where volume {taken[place]} is; choose another path, such as {name}:/mnt/{name}"
            found.append(Problem("volumes", name, words))
        elif place:
            taken[place] = name
    return found


def start_problem(queue: Queue, spec: JobSpec) -> Problem | None:
    """Return why the job cannot begin from the one that it names; None if it can, or names none."""
    if spec.from_job is None:
        return None
    job = Job.objects.filter(pk=spec.from_job, team=queue.team).select_related("queue").first()
    if job is None:
        return Problem("from_job", spec.from_job, f"is no job of team {queue.team.name}; `muster jobs` lists them")
    if job.queue.cluster != queue.cluster:
        words = (
            f"ran on cluster {job.queue.cluster}, and queue {queue.name} is on {queue.cluster}; choose another queue"
        )
        return Problem("from_job", spec.from_job, words)
    if not job.attempt:
        return Problem("from_job", spec.from_job, f"is {job.phase} and has not begun: it has no checkpoints")
    there, here = namespaces.of(job.team, queue.cluster, at=job.created_at), namespaces.of(queue.team, queue.cluster)
    if there != here:
        words = (
            f"has its checkpoints in namespace {there or clusters.namespace_of(queue.cluster)}, and jobs of team "
            f"{queue.team.name} run in {here or clusters.namespace_of(queue.cluster)} by now, whose pods cannot mount "
            "them; copy them to a volume of the team"
        )
        return Problem("from_job", spec.from_job, words)
    return None


def start_notes(spec: JobSpec) -> list[str]:
    """Say if the step to begin from is not among the checkpoints that are known of the other job."""
    if spec.from_job is None or spec.from_step is None:
        return []
    steps = Checkpoint.objects.filter(job=spec.from_job).values_list("step", flat=True)
    note = checkpoints.missing_note(spec.from_step, filter(None, steps), job=spec.from_job)
    return [note] if note else []


def start_of(job: Job) -> StartFrom | None:
    """Return the checkpoints that a launch begins from. Raises Refused where the job that has them was removed."""
    spec = job.job_spec
    if spec.from_job is None:
        return None
    source = Job.objects.filter(pk=spec.from_job, team=job.team).first()
    if source is None:
        raise Refused(f"job {spec.from_job}, whose checkpoints it begins from, was removed")
    own = next((row.claim_name for row in volumes.of_run(source.run) if row.kind == pod_template.CHECKPOINTS), "")
    return StartFrom(source.run, spec.from_step, own)


def mounts_of(job: Job) -> dict[str, Any]:
    """Return the fields of a launch's plan about volumes: `volumes`, `claims`, `job_claims`, `start_from` and `read_only`."""
    spec = job.job_spec
    paths, read_only = entries.mounts(spec.volumes), set(entries.read_only(spec.volumes))
    rows = {
        name: row
        for name, row in volumes.named([*paths], team=job.team).items()
        if row.cluster == job.queue.cluster and clusters.backend(row.cluster).MAKES_PODS
    }
    read_only |= {name for name, row in rows.items() if row.is_read_only or row.access_mode == AccessMode.ROX}
    return {
        "volumes": {name: path or (rows[name].mount_path if name in rows else "") for name, path in paths.items()},
        "claims": {name: claim_of(row) for name, row in rows.items()},
        "read_only": frozenset(read_only),
        "start_from": start_of(job),
        "job_claims": {row.kind: claim_of_job(row) for row in wanted_of(job)},
    }


def warnings(queue: Queue, spec: JobSpec, roles: Iterable[Role]) -> list[str]:
    """Return what may keep the claims that the job is the first to need from being made and mounted. Asks the cluster."""
    if not clusters.backend(queue.cluster).MAKES_PODS:
        return []
    rows = volumes.named([*entries.mounts(spec.volumes)], team=queue.team)
    wanted = {
        f"volume {name}": claim_of(row) for name, row in rows.items() if row.state == State.UNUSED and not row.claim
    }
    slots, replicas = slots_of(roles), sum(role.replicas for role in roles)
    for kind, one in pod_template.storage(queue.template, slots=slots).items():
        storage = JobStorage(run="0-plan", kind=kind, size=one.size, storage_class=one.storage_class)
        name = storage.claim_name
        wanted[kind] = Claim(
            name, one.size, one.storage_class, AccessMode.RWX, kind, queue.team.name, "0-plan", "plan",
            namespaces.of(queue.team, queue.cluster),
        )  # fmt: skip
    return claims.warnings(queue.cluster, wanted, replicas=replicas)


def wanted_of(job: Job) -> list[JobStorage]:
    """Return the claims of the job's own that its queue's template asks for."""
    document = document_of(job)
    if not document.get("storage") or not clusters.backend(job.queue.cluster).MAKES_PODS:
        return []
    namespace = namespaces.of(job.team, job.queue.cluster, at=job.created_at)
    return [
        JobStorage(
            job=job.pk, run=job.run, job_name=job.name, kind=kind, team=job.team, cluster=job.queue.cluster,
            size=one.size, storage_class=one.storage_class, namespace=namespace,
        )
        for kind, one in pod_template.storage(document, slots=job.slots).items()
    ]  # fmt: skip


def claim_of_job(row: JobStorage) -> Claim:
    return Claim(
        row.claim_name, row.size, row.storage_class, AccessMode.RWX, row.kind, row.team.name, row.run, row.job_name,
        row.namespace,
    )  # fmt: skip


def claim_of(row: Volume) -> Claim:
    """Return the volume's claim, where the team's jobs that are submitted now mount it."""
    namespace = namespaces.of(row.team_id, row.cluster)
    return Claim(
        row.claim_name, row.size, row.storage_class, row.access_mode, row.name, row.team.name, namespace=namespace
    )


def has_claims(cluster: str) -> bool:
    """Whether volumes of a cluster are claims, and not folders of one machine."""
    return clusters.is_known(cluster) and clusters.backend(cluster).MAKES_PODS


def check(values: Mapping[str, Any], *, cluster: str) -> None:
    """Raise InvalidInput for what a volume cannot have on this cluster."""
    if not clusters.is_known(cluster):
        raise InvalidInput(Problem("cluster", cluster, f"must be one of {', '.join(clusters.names())}"))
    backend, problems = clusters.backend(cluster), []
    if not backend.MAKES_PODS:
        words = f"has no meaning on cluster {cluster}, where a volume is a folder of one machine; omit it"
        names = ("claim", "storage_class", "mount_path", "is_read_only")
        problems += [Problem(name, values[name], words) for name in names if values.get(name)]
    path = values.get("mount_path")
    if path and (complaint := entries.path_complaint(path)):
        problems.append(Problem("mount_path", path, complaint))
    wanted, is_made = values.get("storage_class", ""), bool(values.get("size")) and not values.get("claim")
    if is_made and "name" in values and backend.MAKES_PODS:
        words = claims.complaint(cluster, wanted, access_mode=values.get("access_mode", AccessMode.RWX))
        problems += [Problem("storage_class", wanted or None, words)] if words else []
    if problems:
        raise InvalidInput(*problems)
