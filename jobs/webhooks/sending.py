"""Send what is due: claim a row, send it, record the end. No transaction and no connection is held while it is sent.

A claim moves the row's due time, so a process that dies while it sends leaves a row that is due again, with the same id.
"""

import json
import math
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.db.models import Min, Q
from django.utils import timezone

from common import faultpoints
from common.db import db_connections
from common.errors import InvalidInput, MusterError
from common.limits.fair_queue import FairQueue
from common.telemetry import measures, traces
from jobs.models import Delivery, Webhook

from . import addresses, sealing, signing, slack
from .request import SendResult, post

LEASE = timedelta(seconds=30)  # longer than a request and the look-up before it take
# Seconds before the next try; a delivery whose last one fails as well is given up, after about 21 hours.
PAUSES = (10, 60, 300, 1800, 7200, 21600, 43200)
JITTER = 0.2  # of a pause, so that many receivers of one outage are not all asked at once
MOST_FORGOTTEN = 5000  # rows per statement
OFF = "the webhook is switched off"
_chance = secrets.SystemRandom()


@dataclass(frozen=True)
class Claim:
    """A delivery that this process may send until `until`, which distinguishes a late result from that of a newer claim.

    `tries` counts this one.
    """

    delivery: int
    webhook: Webhook
    uid: str
    payload: dict[str, Any]
    tries: int
    until: datetime


def due(
    now: datetime, *, busy: Mapping[int, int] = MappingProxyType({}), most: int, most_of_team: float = math.inf
) -> list[int]:
    """Return at most `most` webhooks that have something due, without those in `busy`, which names their teams.

    Next is the team with the fewest in `busy` and chosen, never more than `most_of_team`; equals take turns, beginning
    with the longest overdue. So the slow receivers of one team leave threads to the others.
    """
    overdue = Delivery.objects.filter(next_try_at__lte=now).exclude(webhook__in=busy)
    firsts = overdue.order_by().values("webhook", "webhook__team").annotate(first=Min("next_try_at")).order_by("first")
    waiting = FairQueue[int, int]()
    for webhook, team in firsts.values_list("webhook", "webhook__team"):
        waiting.push(webhook, group=team)
    chosen: list[int] = []
    inside = Counter(busy.values())
    while len(chosen) < most and (
        following := waiting.pop(may=lambda team: inside[team] < most_of_team, load=inside.__getitem__)
    ):
        team, webhook = following
        chosen.append(webhook)
        inside[team] += 1
    return chosen


def claim(webhook: int, *, now: datetime) -> Claim | None:
    """Take the webhook's longest overdue delivery; None if others were first."""
    with faultpoints.atomic("deliveries.claim"):
        waiting = Delivery.objects.filter(webhook=webhook, next_try_at__lte=now)
        locked = waiting.select_for_update(skip_locked=True, of=("self",), no_key=True)
        row = locked.select_related("webhook").order_by("next_try_at", "id").first()
        if row is None:
            return None
        row.tries += 1
        row.next_try_at = now + LEASE
        row.save(update_fields=["tries", "next_try_at"])
    return Claim(row.pk, row.webhook, message_id(row), row.payload, row.tries, row.next_try_at)


def deliver(claim: Claim) -> SendResult:
    """Send a claimed delivery and record how that ended."""
    db_connections.give_back()
    with traces.span("webhook"):
        answer = _send(claim, now=timezone.now())
        record(claim, answer, now=timezone.now())
    return answer


def message_id(row: Delivery) -> str:
    """Return the id by which a receiver recognises what it had already."""
    return f"msg_{row.uid.hex}"


def body_of(webhook: Webhook, payload: dict[str, Any]) -> bytes:
    """Return what is sent, the same bytes at every try."""
    shape = slack.message(payload) if webhook.format == Webhook.Format.SLACK else payload
    return json.dumps(shape, ensure_ascii=False, separators=(",", ":")).encode()


def record(claim: Claim, answer: SendResult, *, now: datetime) -> None:
    """Write how a try ended. A late failure changes nothing once it was claimed or sent again; a late success counts."""
    rows = Delivery.objects.filter(pk=claim.delivery, delivered_at=None)
    if answer.is_received:
        values: dict[str, Any] = {"delivered_at": now, "next_try_at": None, "gave_up_at": None}
    else:
        rows = rows.filter(next_try_at=claim.until)
        pause = pause_after(claim.tries, chance=_chance.random())
        is_over = pause is None or answer.is_final
        wait = timedelta(seconds=max(pause or 0, answer.retry_after))
        values = {"gave_up_at": now, "next_try_at": None} if is_over else {"next_try_at": now + wait}
    with faultpoints.around("deliveries.record"):
        changed = rows.update(**values, status_code=answer.status, error=answer.error[:300])
    if changed:
        result = "delivered" if answer.is_received else "gave_up" if "gave_up_at" in values else "failed"
        measures.deliveries.labels(result).inc()


def pause_after(tries: int, *, chance: float) -> float | None:
    """Return seconds until the next try, None if this was the last. `chance` is from 0 to 1."""
    if tries > len(PAUSES):
        return None
    return PAUSES[tries - 1] * (1 + JITTER * chance)


def forget(*, now: datetime) -> int:
    """Delete deliveries that were settled MUSTER_JOB_DAYS ago. Return how many."""
    old = now - timedelta(days=settings.MUSTER_JOB_DAYS)
    settled = Q(delivered_at__lt=old) | Q(gave_up_at__lt=old)
    count = 0
    while True:
        wanted = Delivery.objects.filter(settled, next_try_at=None).order_by("id").values("pk")
        with faultpoints.around("deliveries.forget"):
            deleted, _ = Delivery.objects.filter(pk__in=wanted[:MOST_FORGOTTEN]).delete()
        count += deleted
        if deleted < MOST_FORGOTTEN:
            return count


def _send(claim: Claim, *, now: datetime) -> SendResult:
    """Send it, signed anew: the time is part of what is signed."""
    webhook = claim.webhook
    if not webhook.is_active:
        return SendResult(None, OFF, is_final=True)
    try:
        target = addresses.parse(sealing.url_of(webhook))
        reachable = addresses.reachable(target)
        body = body_of(webhook, claim.payload)
        signed = signing.headers(uid=claim.uid, at=now, body=body, secrets=sealing.secrets_of(webhook, now=now))
    except InvalidInput as error:
        return SendResult(None, "; ".join(problem.message for problem in error.problems))
    except MusterError as error:
        return SendResult(None, str(error))
    headers = {"Content-Type": "application/json", "User-Agent": "Muster-Webhooks/1", **signed}
    with faultpoints.around("deliveries.send"):
        return post(target, reachable, body=body, headers=headers)
