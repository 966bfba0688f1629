"""What teams used in a time, for pages, the API and CSV: which sums are asked for, and their rows with names."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

from accounts.models import Team, User
from common.errors import InvalidInput, Problem
from queues.models import Queue
from queues.readable import readable_queues

from . import hours

DAY = timedelta(days=1)
MOST_DAYS = 366
USUAL_DAYS = 30
YEARS = range(2000, 3000)


@dataclass(frozen=True)
class Ask:
    """`since` and `until` are midnights (UTC), the latter not included; `team`: one alone; `by_day`: a sum for each day."""

    by: str
    since: datetime
    until: datetime
    team: str = ""
    by_day: bool = False


@dataclass(frozen=True)
class Row:
    """One sum, in hours times slots. `queue`, `user` and `job` are empty where the sum is over them."""

    begins: datetime
    resource: str
    team: str
    queue: str
    user: str
    job: int | None
    name: str
    hours: float
    lost: float
    starting: float
    idle: float


def read(given: Mapping[str, str], *, now: datetime) -> Ask:
    """Return what the parameters of a request ask for: by, since, until, team, step. Raises InvalidInput with every problem."""
    problems: list[Problem] = []
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    until = _day(given, "until", today + DAY, problems)
    since = _day(given, "since", until - USUAL_DAYS * DAY, problems)
    by, step = given.get("by") or "team", given.get("step") or "all"
    if by not in hours.BY:
        problems.append(Problem("by", by, f"must be one of {', '.join(hours.BY)}"))
    if step not in ("all", "day"):
        problems.append(Problem("step", step, "must be day, for a sum of each, or all"))
    if not problems and not DAY <= until - since <= MOST_DAYS * DAY:
        problems.append(
            Problem("since", f"{since:%Y-%m-%d}", f"must be 1 to {MOST_DAYS} days before until ({until:%Y-%m-%d})")
        )
    if problems:
        raise InvalidInput(*problems)
    return Ask(by, since, until, given.get("team") or "", step == "day")


def report(ask: Ask, *, reader: User, now: datetime) -> list[Row]:
    """Return the sums of the queues that somebody may read, by their beginning, then the largest first.

    Raises InvalidInput for a team that is none of theirs.
    """
    queues = {queue.pk: queue for queue in readable_queues(reader)}
    if ask.team:
        queues = {pk: queue for pk, queue in queues.items() if queue.team.name == ask.team}
        if not queues:
            raise InvalidInput(
                Problem("team", ask.team, "has no queue that you may see; leave it out for all of yours")
            )
    step = DAY if ask.by_day else None
    found = hours.used(queues, by=ask.by, since=ask.since, until=ask.until, now=now, step=step)
    teams = dict(Team.objects.filter(pk__in={one.team for one in found}).values_list("pk", "name"))
    users = dict(User.objects.filter(pk__in={one.user for one in found if one.user}).values_list("pk", "username"))
    rows = [_named(one, teams, queues, users) for one in found]
    return sorted(
        rows, key=lambda one: (one.begins, one.resource, -one.hours, one.team, one.queue, one.user, one.job or 0)
    )


def as_csv(rows: list[Row]) -> str:
    """Return the rows as CSV with a line of headers. What a spreadsheet would take for a formula begins with an apostrophe."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [one.name for one in fields(Row)]
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(getattr(row, name)) for name in names])
    return text.getvalue()


def _cell(value: Any) -> Any:
    match value:
        case datetime():
            return f"{value:%Y-%m-%d}"
        case float():
            return round(value, 3)
        case str() if value[:1] in ("=", "+", "-", "@", "\t", "\r"):
            return f"'{value}"
    return "" if value is None else value


def _named(one: hours.Used, teams: Mapping[int, str], queues: Mapping[int, Queue], users: Mapping[int, str]) -> Row:
    queue = queues[one.queue].name if one.queue is not None else ""
    user = users.get(one.user, "") if one.user is not None else ""
    return Row(
        one.begins, one.resource, teams.get(one.team, ""), queue, user, one.job, one.name, one.hours, one.lost, one.starting,
        one.idle,
    )  # fmt: skip


def _day(given: Mapping[str, str], name: str, usual: datetime, problems: list[Problem]) -> datetime:
    text = given.get(name)
    if not text:
        return usual
    try:
        found = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        found = None
    if found is not None and found.year in YEARS:
        return found
    problems.append(Problem(name, text, f"must be a day from {YEARS[0]} to {YEARS[-1]}, such as 2026-03-31"))
    return usual
