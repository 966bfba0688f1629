"""Ask a queue's cluster whether it would take the pods that a version of the queue describes. Nothing is made by it."""

import logging

from common.errors import InvalidInput, Refused, Unreachable
from jobs import clusters, frameworks
from jobs.clusters import Checked, Checks
from jobs.core.plan import Plan
from jobs.submission import pods
from queues import namespaces, templates
from queues.models import QueueVersion

log = logging.getLogger(__name__)
RUN = "check"


def check(version: QueueVersion) -> None:
    """Check a version once, and record what its cluster says; the same content as before has the same answer."""
    if version.check_state:
        return
    before = templates.checked_before(version)
    found = Checked(before.check_state, before.check_words) if before else _ask(version)
    templates.record_check(version, state=found.state, words=found.words)


def _ask(version: QueueVersion) -> Checked:
    queue = version.queue
    try:
        if not clusters.backend(queue.cluster).MAKES_PODS:
            return Checked("not_checked", f"cluster {queue.cluster} has no pods")
        cluster = clusters.get(queue.cluster)
        if not isinstance(cluster, Checks):
            return Checked("not_checked", f"cluster {queue.cluster} cannot be asked")
        return cluster.check(_plan(version))
    except (InvalidInput, Refused) as error:  # such as defaults that a plain torchrun job cannot have
        return Checked("not_checked", str(error))
    except Unreachable as error:
        log.info("queue %s is not checked: %s", queue.name, error)
        return Checked("not_checked", f"cluster {queue.cluster} did not answer: {error}")


def _plan(version: QueueVersion) -> Plan:
    """Return one replica that takes a whole node, as a torchrun job of this queue would have it."""
    queue, content = version.queue, version.content
    per_node, spec = int(content["gpus_per_node"]), pods.usual_spec(content)
    roles = frameworks.roles(spec, below=pods.layer_of(content))
    return Plan(
        RUN, version.pk, roles, spec.framework, team=queue.team.name, job=RUN, user="muster", resource=queue.resource,
        node_slots=per_node, namespace=namespaces.of(queue.team, queue.cluster),
    )  # fmt: skip
