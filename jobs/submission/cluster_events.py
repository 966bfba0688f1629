"""What a job's cluster itself says of its pods: its Events, read when somebody asks."""

from common.errors import ClusterError, InvalidInput
from jobs import clusters
from jobs.clusters import ClusterEvents, RawEvents
from jobs.core.attempt_ref import AttemptRef
from jobs.models import Job


def of_attempt(job: Job, attempt: int) -> ClusterEvents:
    """Return the newest Events about the pods of an attempt; without any, a message that says why."""
    row = job.attempts.filter(number=attempt).first()
    if row is None:
        return ClusterEvents(message="The job has not been started on a cluster yet.")
    if not clusters.is_known(row.cluster):
        return ClusterEvents(message=f"Cluster {row.cluster}, where it ran, is no longer among those of this server.")
    names = list(job.replicas.filter(attempt=attempt).exclude(name="").values_list("name", flat=True))
    try:
        cluster = clusters.get(row.cluster)
        if not isinstance(cluster, RawEvents):
            words = f"Cluster {row.cluster} starts processes of one machine, which has no Events of its own."
            return ClusterEvents(message=f"{words} `muster events {job.pk}` lists what Muster noted.")
        found = cluster.raw_events(AttemptRef(job.run, attempt, row.namespace), names)
    except (ClusterError, InvalidInput) as error:
        return ClusterEvents(message=f"Cluster {row.cluster} does not say: {error}.")
    if found.events or found.message:
        return found
    where = f" in namespace {row.namespace}" if row.namespace else ""
    words = f"The cluster has no Events of the pods of attempt {attempt}{where}: it keeps them for an hour, as a rule"
    return ClusterEvents(message=words + (", and the attempt is over." if row.ended_at else "."))
