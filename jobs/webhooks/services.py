"""The only writers of webhooks: administrators of the team. Each change writes its audit entry in its own transaction.

URL and secret are written, never read: a Slack URL is itself the right to post.
"""

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db import IntegrityError
from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone

from accounts import audit, members
from accounts.audit import AuditAction
from accounts.models import Team, User
from accounts.permissions import Act, require
from common import faultpoints
from common.errors import Conflict, InvalidInput, InvalidSpec, Problem, Refused
from jobs.models import Delivery, Webhook

from . import addresses, events, sealing, sending
from .events import Choice, WebhookEvent

MOST = 20  # of one team
OLD_SECRET = timedelta(hours=24)
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")  # as of teams and jobs
CHANGEABLE = ("url", "format", "events", "all_jobs", "is_active")


def of_team(user: User, team: str) -> tuple[Team, QuerySet[Webhook]]:
    """Return a team that the user may read, and its webhooks. Raises Http404 for any other."""
    found = members.readable_team(user, team)
    return found, Webhook.objects.filter(team=found).order_by("name")


def one_of(user: User, team: str, name: str) -> Webhook:
    """Return a webhook that the user may read. Raises Http404."""
    found, webhooks = of_team(user, team)
    webhook = webhooks.filter(name=name).select_related("team").first()
    if webhook is None:
        raise Http404(f"team {found.name} has no webhook named {name}")
    return webhook


def check_names(names: Iterable[str], *, team: Team) -> None:
    """Raise InvalidSpec for a name in a job's `notify` that is no webhook of its team."""
    asked = list(names)
    if not asked:
        return
    known = sorted(Webhook.objects.filter(team=team).values_list("name", flat=True))
    there = f"known are {', '.join(known)}" if known else "it has none"
    words = f"is not a webhook of team {team.name}; {there}; its administrators add one at /teams/{team.name}/webhooks"
    if problems := [Problem("notify", one, f"{one} {words}") for one in asked if one not in known]:
        raise InvalidSpec(*problems)


def create(
    *, team: Team, by: User, name: str, url: str, events: Iterable[str], format: str = "json", all_jobs: bool = True
) -> tuple[Webhook, str]:
    """Return the new webhook and its signing secret, which nothing returns again.

    Raises NotAllowed, InvalidInput with one problem per field, and Conflict for a name that is taken.
    """
    require(by, Act.MANAGE, team)
    values = _checked(name=name, url=url, events=events, format=format, all_jobs=all_jobs)
    secret = sealing.new_secret()
    try:
        with faultpoints.atomic("services.webhook"):
            Team.objects.select_for_update(no_key=True).get(pk=team.pk)
            if Webhook.objects.filter(team=team).count() >= MOST:
                raise Conflict(f"team {team.name} has {MOST} webhooks already; remove one first", "name", name)
            webhook = Webhook.objects.create(
                team=team, name=name, created_by=by, sealed_secret=sealing.seal_secret(secret), **values
            )
            audit.record(AuditAction.WEBHOOK_MADE, by=by, on=webhook, team=team, after=_audited(webhook))
    except IntegrityError as error:
        raise Conflict(f"team {team.name} has a webhook named {name} already; choose another name", "name", name) from (
            error
        )
    return webhook, secret


def change(*, webhook: Webhook, by: User, **asked: Any) -> Webhook:
    """Change some of CHANGEABLE; its name stays, because jobs name it. What waits is given up when it is switched off.

    Raises NotAllowed and InvalidInput.
    """
    require(by, Act.MANAGE, webhook.team)
    values = _checked(**asked)
    with faultpoints.atomic("services.webhook"):
        row = _locked(webhook)
        before = _audited(row)
        for name, value in values.items():
            setattr(row, name, value)
        row.save(update_fields=list(values))
        if not row.is_active:
            waiting = row.deliveries.filter(next_try_at__isnull=False)
            waiting.update(next_try_at=None, gave_up_at=timezone.now(), error=sending.OFF)
        after = _audited(row) | ({"address": "changed"} if "sealed_url" in values else {})
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        old = {name: before[name] for name in changed if name in before}
        audit.record(AuditAction.WEBHOOK_CHANGED, by=by, on=row, team=row.team, before=old, after=changed)
    return row


def rotate(*, webhook: Webhook, by: User) -> tuple[Webhook, str]:
    """Return a new signing secret. The one before signs as well for 24 hours, so that receivers can change over."""
    require(by, Act.MANAGE, webhook.team)
    secret, now = sealing.new_secret(), timezone.now()
    with faultpoints.atomic("services.webhook"):
        row = _locked(webhook)
        row.sealed_old_secret = row.sealed_secret if _is_readable(row) else ""
        row.old_secret_until = now + OLD_SECRET if row.sealed_old_secret else None
        row.sealed_secret = sealing.seal_secret(secret)
        row.save(update_fields=["sealed_secret", "sealed_old_secret", "old_secret_until"])
        audit.record(AuditAction.WEBHOOK_ROTATED, by=by, on=row, team=row.team)
    return row, secret


def remove(*, webhook: Webhook, by: User) -> None:
    """Delete a webhook with its history; what waits is not sent. The audit keeps that it existed."""
    require(by, Act.MANAGE, webhook.team)
    with faultpoints.atomic("services.webhook"):
        row = _locked(webhook, is_last=True)
        audit.record(AuditAction.WEBHOOK_REMOVED, by=by, on=row, team=row.team, before=_audited(row))
        row.delete()


def ping(*, webhook: Webhook, by: User) -> Delivery:
    """Send a test. Raises Conflict where the webhook is switched off."""
    require(by, Act.MANAGE, webhook.team)
    now = timezone.now()
    payload = events.ping(at=now, team=webhook.team.name, webhook=webhook.name)
    with faultpoints.atomic("services.webhook"):
        row = _active(webhook)
        found = Delivery.objects.create(
            webhook=row, event=WebhookEvent.PING, payload=payload, created_at=now, next_try_at=now
        )
        audit.record(AuditAction.WEBHOOK_TESTED, by=by, on=row, team=row.team)
    return found


def send_again(*, delivery: Delivery, by: User) -> Delivery:
    """Send a delivery now, whatever became of it; it keeps its id. Raises Conflict where its webhook is switched off."""
    require(by, Act.MANAGE, delivery.webhook.team)
    with faultpoints.atomic("services.webhook"):
        hook = _active(delivery.webhook)
        row = Delivery.objects.select_for_update(no_key=True).get(pk=delivery.pk)
        row.next_try_at, row.delivered_at, row.gave_up_at = timezone.now(), None, None
        row.tries, row.error, row.status_code = 0, "", None
        row.save()
        fields = {"event": row.event, "job": row.job_id}
        audit.record(AuditAction.WEBHOOK_REPEATED, by=by, on=hook, team=hook.team, after=fields)
    return row


def _checked(**asked: Any) -> dict[str, Any]:
    """Return the columns for these fields. Raises InvalidInput with every problem at once."""
    problems: list[Problem] = []
    if "name" in asked and not NAME.fullmatch(asked.pop("name")):
        words = "must be 1 to 40 of a-z, 0-9 and -, not beginning or ending with -"
        problems.append(Problem("name", None, words))
    values = {name: value for name, value in asked.items() if name in ("all_jobs", "is_active")}
    if "format" in asked:
        values["format"] = _of("format", [asked["format"]], Webhook.Format.values, problems=problems)[0]
    if "events" in asked:
        values["events"] = sorted(set(_of("events", asked["events"], list(Choice), problems=problems)))
        if not values["events"]:
            problems.append(Problem("events", None, f"is empty; choose from {', '.join(Choice)}"))
    if "url" in asked:
        try:
            values |= _sealed(str(asked["url"]).strip())
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(*problems)
    return values


def _of(field: str, asked: Iterable[str], known: Iterable[str], *, problems: list[Problem]) -> list[str]:
    found, choices = [str(one) for one in asked], list(known)
    wrong = [one for one in found if one not in choices]
    problems += [Problem(field, one, f"is not known; choose from {', '.join(choices)}") for one in wrong]
    return found


def _sealed(url: str) -> dict[str, str]:
    target = addresses.parse(url)
    addresses.reachable(target)
    return {"host": target.place, "sealed_url": sealing.seal_url(url)}


def _locked(webhook: Webhook, *, is_last: bool = False) -> Webhook:
    """Return the row, locked. `is_last`: also against steps that are about to write a delivery for it."""
    rows = Webhook.objects.select_for_update(of=("self",), no_key=not is_last).select_related("team")
    found = rows.filter(pk=webhook.pk).first()
    if found is None:
        raise Http404(f"webhook {webhook.name} was removed meanwhile")
    return found


def _active(webhook: Webhook) -> Webhook:
    row = _locked(webhook)
    if not row.is_active:
        raise Conflict(f"webhook {row.name} is switched off; switch it on first", "is_active", False)
    return row


def _is_readable(webhook: Webhook) -> bool:
    try:
        return bool(sealing.secrets_of(webhook, now=timezone.now()))
    except Refused:
        return False


def _audited(webhook: Webhook) -> dict[str, Any]:
    """Return what the audit shows: of the URL only its host."""
    names = ("host", "format", "events", "all_jobs", "is_active")
    return {name: getattr(webhook, name) for name in names}
