"""What a step of a job puts into the outbox: one delivery for each webhook to be notified.

The store writes these rows in the transaction of the step. Most teams have no webhook, so a step costs one look-up in an
index.
"""

import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection

from common.db import sql
from common.errors import Refused
from common.telemetry import redaction
from common.text import plain
from jobs.analysis import failures
from jobs.models import Delivery, Job

from . import events
from .events import FailureFacts, JobFacts, WebhookEvent

MOST_TEXT = 500  # characters of a message or of an error's headline
LEAST_SECRET = 4  # characters; a shorter value would strike out parts of ordinary words
REMOVED = "[removed]"
_TELLING = ("KEY", "TOKEN", "SECRET", "PASS", "AUTH", "CREDENTIAL")  # in names of variables that should be secrets
WANTED = sql.load("jobs/sql/webhooks_of_event.sql")


def event_of(job: Job, *, before: str, reason: str | None) -> WebhookEvent | None:
    return events.of_step(before, job.phase, reason)


def deliveries(job: Job, event: WebhookEvent, *, now: datetime, secrets: Callable[[], Iterable[str]]) -> list[Delivery]:
    """Return the rows that report this event, unsaved. `secrets` returns the values that no text of it may hold."""
    webhooks = _wanted(job, event)
    if not webhooks:
        return []
    payload = events.payload(event, at=now, **_told(job, event, secrets))
    return [
        Delivery(
            webhook_id=one, job=job, uid=uuid.uuid4(), event=event, attempt=job.attempt, payload=payload,
            created_at=now, next_try_at=now,
        )
        for one in webhooks
    ]  # fmt: skip


def _wanted(job: Job, event: WebhookEvent) -> list[int]:
    given: dict[str, Any] = {
        "team": job.team_id,
        "names": list(job.spec.get("notify", [])),
        "choices": events.choices_with(event),
    }
    with connection.cursor() as cursor:
        cursor.execute(WANTED, given)
        return [row[0] for row in cursor.fetchall()]


def _facts(job: Job, name: str) -> JobFacts:
    return JobFacts(
        id=job.pk, name=name, team=job.team.name, queue=job.queue.name, user=job.user.get_username(),
        framework=job.spec["framework"], phase=job.phase, attempt=job.attempt, created_at=job.created_at,
        started_at=job.running_at, finished_at=job.finished_at, url=job.public_url if settings.PUBLIC_URL else None,
    )  # fmt: skip


def _told(job: Job, event: WebhookEvent, secrets: Callable[[], Iterable[str]]) -> dict[str, Any]:
    """Return the job, the step's message, and what failed first. The attempt was judged before its last step."""
    try:
        hidden = _hidden(job, secrets())
    except Refused as error:  # what cannot be read cannot be struck out
        return {"job": _facts(job, f"job {job.pk}"), "message": f"not told: {error}"}
    found = failures.stored(job, job.attempt) if event in (WebhookEvent.FAILED, WebhookEvent.RETRYING) else None
    failure = found and FailureFacts(
        found.rank, found.replica, found.exit_code, found.signal, found.kind, safe(found.headline, hidden)
    )
    facts = _facts(job, safe(job.name, hidden))
    return {"job": facts, "message": safe(job.message, hidden), "failure": failure}


def _hidden(job: Job, secrets: Iterable[str]) -> list[str]:
    """Return what is struck out, the longest first: secrets, and variables that are named like one."""
    env = job.spec.get("env", {})
    named = [value for name, value in env.items() if any(word in name.upper() for word in _TELLING)]
    return sorted({one for one in (*secrets, *named) if len(one) >= LEAST_SECRET}, key=len, reverse=True)


def safe(text: str, hidden: Iterable[str]) -> str:
    """Return a text that may leave the installation: without the job's secrets and what looks like one, and short."""
    for value in hidden:
        text = text.replace(value, REMOVED)
    clean = plain(redaction.without_secrets(text[: 4 * MOST_TEXT]))
    return clean if len(clean) <= MOST_TEXT else f"{clean[: MOST_TEXT - 1]}…"
