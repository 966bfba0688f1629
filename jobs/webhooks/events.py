"""Which events there are, which step of a job is one, and the payload that reports it. Pure."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from jobs.core.lifecycle import TERMINAL, Phase, StopReason


class WebhookEvent(StrEnum):
    STARTED = "started"  # every replica runs; again after each retry and each resume
    RETRYING = "retrying"  # an attempt failed, and the job is tried again
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # for good
    CANCELLED = "cancelled"
    PING = "ping"  # a test that an administrator asked for


class Choice(StrEnum):
    """What an administrator chooses from."""

    START = "start"
    END = "end"
    FAILURE = "failure"


EVENTS_OF = {
    Choice.START: frozenset({WebhookEvent.STARTED}),
    Choice.END: frozenset({WebhookEvent.SUCCEEDED, WebhookEvent.FAILED, WebhookEvent.CANCELLED}),
    Choice.FAILURE: frozenset({WebhookEvent.RETRYING, WebhookEvent.FAILED}),
}


@dataclass(frozen=True)
class JobFacts:
    """What a payload says about a job. `url` is None where the installation has no public address."""

    id: int
    name: str
    team: str
    queue: str
    user: str
    framework: str
    phase: str
    attempt: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    url: str | None


@dataclass(frozen=True)
class FailureFacts:
    """What made the attempt fail. `rank` is None where a replica failed before it had ranks; `headline` names who."""

    rank: int | None
    replica: str
    exit_code: int | None
    signal: int | None
    kind: str
    headline: str


def of_step(before: str, to: str, reason: str | None) -> WebhookEvent | None:
    """Return the event that a step of the lifecycle is; most are none."""
    if before == to:
        return None
    if to == Phase.RUNNING:
        return WebhookEvent.STARTED
    if to in TERMINAL:
        return WebhookEvent(to)
    if before == Phase.STOPPING and to == Phase.ADMITTED and reason == StopReason.RETRY:
        return WebhookEvent.RETRYING
    return None


def choices_with(event: WebhookEvent) -> list[str]:
    return [choice.value for choice, events in EVENTS_OF.items() if event in events]


def payload(
    event: WebhookEvent, *, at: datetime, job: JobFacts, message: str, failure: FailureFacts | None = None
) -> dict[str, Any]:
    """Return the JSON object that is sent, times as ISO 8601 in UTC. Its form is that of Standard Webhooks."""
    fields = {name: _json(value) for name, value in asdict(job).items()}
    return {
        "type": f"job.{event}",
        "timestamp": _json(at),
        "data": {"job": fields, "message": message, "failure": asdict(failure) if failure else None},
    }


def ping(*, at: datetime, team: str, webhook: str) -> dict[str, Any]:
    """Return the payload of a test; it is about no job."""
    return {"type": WebhookEvent.PING.value, "timestamp": _json(at), "data": {"team": team, "webhook": webhook}}


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
