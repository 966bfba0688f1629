"""Where jobs of several teams share a machine, no job may run code it receives from others."""

from common.errors import Problem
from jobs import frameworks
from jobs.core.spec import JobSpec
from queues import sharing
from queues.models import Queue


def problem(spec: JobSpec, queue: Queue) -> Problem | None:
    """Return why the job may not run on this queue's machine, or None.

    Checked at submission, when a job is resumed, and before each attempt: another team may have been added meanwhile.
    """
    found = frameworks.get(spec.framework).takes_code(spec)
    if found is None or not sharing.has_others(queue):
        return None
    field, value = found
    return Problem(
        field,
        value,
        "makes the job run what its ports are sent, and jobs of other teams on this machine could send it code: leave it out, "
        "use a queue on Kubernetes, or have the operator declare that these teams trust each other (MUSTER_TEAMS_TRUST=1)",
    )
