"""Requests for more quota: of a queue, which administrators of its team decide, or of a team's flavor, which the platform's do.

Granting a request is an ordinary change of quota, made by whoever grants it and bound by the same rules.
"""

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import Team, User
from accounts.permissions import (
    Act,
    is_platform_admin,
    may,
    readable_teams,
    require,
    require_platform_admin,
    teams_where,
)
from common.errors import Conflict, InvalidInput, Problem

from . import cohorts, services
from .models import Flavor, Queue, QuotaRequest, TeamQuota
from .resources import describe

MOST_WORDS = 500  # characters
MOST_SLOTS = services.MOST_SLOTS
State = QuotaRequest.State


def readable(user: User) -> QuerySet[QuotaRequest]:
    """Return the requests of one's teams, the newest first."""
    teams = readable_teams(user)
    return _rows() if teams is None else _rows().filter(team__in=teams)


def to_decide(user: User) -> QuerySet[QuotaRequest]:
    """Return the open requests that one may decide, the oldest first."""
    managed = teams_where(user, Act.MANAGE)
    theirs = Q() if managed is None else Q(queue__isnull=False, team__in=managed)
    rows = _rows().filter(theirs, state=State.OPEN)
    return (rows if is_platform_admin(user) else rows.exclude(queue=None)).order_by("id")


def _rows() -> QuerySet[QuotaRequest]:
    rows = QuotaRequest.objects.select_related("team", "queue__team", "flavor", "asked_by", "decided_by")
    return rows.order_by("-id")


def ask(
    *, by: User, slots: int, why: str, queue: Queue | None = None, team: Team | None = None, flavor: str = ""
) -> QuotaRequest:
    """Ask for more of a queue, or of a team's flavor. Raises NotAllowed, InvalidInput, and Conflict where it is asked already."""
    if (queue is None) == (team is None or not flavor):
        raise InvalidInput(Problem("queue", None, "must be given, or team and flavor instead of it"))
    whose: Team = queue.team if queue is not None else team  # type: ignore[assignment]
    require(by, Act.SUBMIT, whose)
    kind = None if queue is not None else cohorts.flavor_named(flavor)
    has = in_hand(queue, whose, kind)
    if problems := [*_slots_problems(slots, has), *_words_problems("why", why, "say what it is for")]:
        raise InvalidInput(*problems)
    row = QuotaRequest(team=whose, queue=queue, flavor=kind, has=has, wanted=slots, why=why.strip(), asked_by=by)
    try:
        with transaction.atomic():
            row.save()
            audit.record(
                AuditAction.QUOTA_ASKED, by=by, on=whose, team=whose, after={**_of(row), "slots": slots, "why": row.why}
            )
    except IntegrityError as error:
        open_one = QuotaRequest.objects.filter(team=whose, queue=queue, flavor=kind, state=State.OPEN).first()
        words = f"request {open_one.pk} for {open_one.wanted} is" if open_one else "another request is"
        raise Conflict(f"{words} open already; wait for its answer, or withdraw it first", "slots", slots) from error
    return row


def grant(*, request: QuotaRequest, by: User, slots: int | None = None, answer: str = "") -> QuotaRequest:
    """Change the quota as it was asked, or to `slots`. Raises NotAllowed, Conflict, and InvalidInput as the change itself does."""
    _decides(by, request)
    if problems := _words_problems("answer", answer):
        raise InvalidInput(*problems)
    with transaction.atomic():
        row = _locked(request)
        given = row.wanted if slots is None else slots
        _more(row, given)
        who = row.asked_by.get_username() if row.asked_by else "somebody"
        reason = f"asked for by {who}: {row.why}"[: services.MOST_REASON]
        if row.queue is not None:
            services.change(queue=row.queue, by=by, slots=given, reason=reason)
        elif row.flavor is not None:
            try:
                cohorts.set_quota(by=by, team=row.team, flavor=row.flavor.name, nominal=given, reason=reason)
            except InvalidInput as error:
                raise InvalidInput(*(Problem("slots", one.value, one.message) for one in error.problems)) from error
        return _decided(row, State.GRANTED, by, answer, granted=given)


def decline(*, request: QuotaRequest, by: User, answer: str) -> QuotaRequest:
    """Say no, and why. Raises NotAllowed, Conflict and InvalidInput."""
    _decides(by, request)
    if problems := _words_problems("answer", answer, "say why not"):
        raise InvalidInput(*problems)
    with transaction.atomic():
        return _decided(_locked(request), State.DECLINED, by, answer)


def withdraw(*, request: QuotaRequest, by: User) -> QuotaRequest:
    """Take a request back: one's own, or as an administrator of the team."""
    if request.asked_by_id != by.pk or not may(by, Act.SUBMIT, request.team):
        require(by, Act.MANAGE, request.team)
    with transaction.atomic():
        return _decided(_locked(request), State.WITHDRAWN, by, "")


def in_hand(queue: Queue | None, team: Team, flavor: Flavor | None) -> int:
    """Return how much there is of a queue, or without one of a team's flavor."""
    if queue is not None:
        return queue.nominal
    return TeamQuota.objects.filter(team=team, flavor=flavor).values_list("nominal", flat=True).first() or 0


def may_decide(user: User, request: QuotaRequest) -> bool:
    return is_platform_admin(user) or (request.queue_id is not None and may(user, Act.MANAGE, request.team))


def _decides(by: User, request: QuotaRequest) -> None:
    if request.queue_id is None:
        require_platform_admin(by, "decide about the quota of teams")
    else:
        require(by, Act.MANAGE, request.team)


def _locked(request: QuotaRequest) -> QuotaRequest:
    row = _rows().select_for_update(of=("self",), no_key=True).get(pk=request.pk)
    if row.state != State.OPEN:
        by = f" by {row.decided_by.get_username()}" if row.decided_by else ""
        raise Conflict(f"request {row.pk} was {row.get_state_display().lower()}{by} already", "state", row.state)
    return row


def _more(row: QuotaRequest, given: int) -> None:
    """Raise Conflict where a grant would be less than there is by now: it never takes quota away."""
    Team.objects.select_for_update(no_key=True).get(pk=row.team_id)  # as every change of its quota does
    has = in_hand(row.queue and Queue.objects.get(pk=row.queue.pk), row.team, row.flavor)
    if isinstance(given, bool) or not isinstance(given, int) or given <= has:
        raise Conflict(f"there are {has} by now, and {given} would be no more; grant more, or decline", "slots", given)


def _decided(row: QuotaRequest, state: str, by: User, answer: str, *, granted: int | None = None) -> QuotaRequest:
    row.state, row.answer, row.granted = state, answer.strip(), granted
    row.decided_by, row.decided_at = by, timezone.now()
    row.save(update_fields=["state", "decided_by", "decided_at", "answer", "granted"])
    after = {**_of(row), "request": row.pk, "answer": str(state)}
    after |= {name: value for name, value in (("slots", granted), ("words", row.answer)) if value not in (None, "")}
    audit.record(AuditAction.QUOTA_ANSWERED, by=by, on=row.team, team=row.team, after=after)
    return row


def _of(row: QuotaRequest) -> dict[str, Any]:
    return {"queue": row.queue.name} if row.queue is not None else {"flavor": row.flavor.name if row.flavor else ""}


def _slots_problems(slots: Any, has: int) -> list[Problem]:
    if isinstance(slots, bool) or not isinstance(slots, int) or not has < slots <= MOST_SLOTS:
        return [Problem("slots", slots, f"must be a whole number above the {has} that there are, at most {MOST_SLOTS}")]
    return []


def _words_problems(name: str, words: str, needed: str = "") -> list[Problem]:
    if needed and not words.strip():
        return [Problem(name, None, f"is missing; {needed}")]
    if len(words) > MOST_WORDS:
        return [Problem(name, None, f"has {len(words)} characters; at most {MOST_WORDS} are stored")]
    return []


def described(row: QuotaRequest) -> str:
    """Return what is asked for in words: "16 GPUs instead of 8 for queue research"."""
    if row.queue is not None:
        return f"{describe({row.queue.resource: row.wanted})} instead of {row.has} for queue {row.queue.name}"
    resource = row.flavor.resource if row.flavor else "gpu"
    return f"{describe({resource: row.wanted})} instead of {row.has} of flavor {row.flavor.name if row.flavor else ''}"
