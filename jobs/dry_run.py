"""What a submission would do: the dry run behind `plans`, the submit form and `muster submit --dry-run`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accounts.models import User
from accounts.permissions import Act, require
from jobs.core.plan import Role, slots_of
from jobs.core.spec import JobSpec
from queues import admission
from queues.models import Queue
from workspaces.models import Workspace

from . import clusters, command_words, frameworks, services
from .control import scheduler


@dataclass(frozen=True)
class Preview:
    """The result of a dry run. `wait_reason` is empty if the job would be admitted at once."""

    queue: Queue
    spec: JobSpec
    roles: tuple[Role, ...]
    asked: dict[str, int]
    wait_reason: str
    notes: tuple[str, ...] = ()  # what a user should know before it starts


def preview(*, user: User, queue: Queue, sent: Mapping[str, Any], workspace: Workspace | None = None) -> Preview:
    """Return what `services.submit` would do, without creating anything. Raises the same errors."""
    require(user, Act.SUBMIT, queue.team)
    spec = services.resolve(queue=queue, sent=sent, workspace=workspace)
    roles = frameworks.get(spec.framework).roles(spec)
    asked = {queue.resource: slots_of(roles)}
    notes = (*command_words.notes(queue=queue, sent=sent, workspace=workspace), *_notes(queue, spec))
    return Preview(queue, spec, roles, asked, _wait_reason(queue, spec, asked), notes)


def _notes(queue: Queue, spec: JobSpec) -> tuple[str, ...]:
    """Warn about open ports: pods have addresses of their own, but processes of one machine share all of its."""
    if clusters.backend(queue.cluster).SEPARATES:
        return ()
    listens = frameworks.get(spec.framework).listens(spec)
    return (f"{listens} (docs/security.md)",) if listens else ()


def _wait_reason(queue: Queue, spec: JobSpec, asked: dict[str, int]) -> str:
    """Return admission's own reason, with the new job behind those that wait already."""
    state, waiting = scheduler.snapshot(queue)
    newest = admission.Pending(0, queue.name, asked, spec.priority, float("inf"))
    for decision in admission.decide([state], [*waiting, newest]):
        if decision.job == 0 and isinstance(decision, admission.Wait):
            return decision.reason
    return ""
