"""One month of a queue, simulated: prints one JSON line of how its forecasts did. `python -m bench.forecast_month SEED`.

Kinds of jobs have their own duration with its spread; users submit sweeps of a kind in office hours more than at night; some
fail early, some report their steps, some have a deadline, a few a higher priority. The queue is busy: nine tenths of its quota.
"""

import heapq
import json
import os
import statistics
import sys
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup()

from jobs.core.lifecycle import Phase  # noqa: E402
from jobs.models import Job  # noqa: E402
from jobs.scheduling import holding  # noqa: E402
from jobs.scheduling.holding import RECENT, Ended, History  # noqa: E402
from queues.admission import Admit, Holding, Pending, Policy, QueueState, Range, decide, forecast  # noqa: E402
from queues.admission.durations import expected  # noqa: E402

DAY, HOUR = 86400.0, 3600.0
WARM_UP, LASTS = 7 * DAY, 37 * DAY
QUOTA, LOAD, USERS = 64, 0.9, 12
ASKED_EVERY = 3  # of jobs that wait, how many are asked about: a forecast costs tens of milliseconds
BASELINE = 50  # waits of the queue before, of which the baseline takes the same quantiles
NAME = "train"


@dataclass(frozen=True)
class Kind:
    """What one user runs again and again. `spread`: of the logarithm of its seconds."""

    user: int
    name: str
    seconds: float
    spread: float
    slots: int
    reports: bool
    deadline: float | None


@dataclass
class Run:
    """One job of the month. `seconds`: what it will take; `asked`: the range it was told at `asked_at`."""

    row: Job
    kind: Kind
    seconds: float
    priority: int
    submitted: float
    pace: float  # how wrong its steps foretell its end
    asked: Range | None = None
    baseline: Range | None = None
    is_asked: bool = False
    started: float | None = None


@dataclass
class Month:
    random: Random
    running: dict[int, Run] = field(default_factory=dict)
    waiting: dict[int, Run] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)  # the newest first
    waits: list[float] = field(default_factory=list)
    told: list[Run] = field(default_factory=list)

    def play(self) -> None:
        kinds = [self._kind(number) for number in range(3 * USERS)]
        events = [(at, number, run) for number, (at, run) in enumerate(self._arrivals(kinds))]
        heapq.heapify(events)
        ends: list[tuple[float, int]] = []
        while events or ends:
            if ends and (not events or ends[0][0] <= events[0][0]):
                at, number = heapq.heappop(ends)
                self._end(self.running.pop(number), at)
            else:
                at, number, run = heapq.heappop(events)
                run.row.pk = number + 1
                self.waiting[number + 1] = run
            for one in self._admit(at):
                heapq.heappush(ends, (at + one.seconds, one.row.pk))
            self._ask(at)

    def _kind(self, number: int) -> Kind:
        draw = self.random
        seconds = HOUR * draw.lognormvariate(0.5, 1.2)
        spread = draw.uniform(0.05, 0.6)
        return Kind(
            number % USERS, f"kind-{number}x", seconds, spread, draw.choice((1, 1, 2, 4, 8, 8, 16, 32)), draw.random() < 0.3,
            draw.choice((None, None, 2.0, 4.0)),
        )  # fmt: skip

    def _arrivals(self, kinds: list[Kind]) -> list[tuple[float, Run]]:
        """Sweeps of a kind, so many that the queue is nine tenths busy."""
        found, at, sweep = [], 0.0, 4.0
        work = statistics.mean(kind.slots * kind.seconds for kind in kinds)
        between = sweep * work / (QUOTA * LOAD)
        while at < LASTS:
            is_day = 8 <= (at % DAY) / HOUR < 20
            at += self.random.expovariate(1.0) * between * (0.65 if is_day else 2.2)
            kind = self.random.choice(kinds)
            for _ in range(min(16, 1 + int(self.random.expovariate(1 / (sweep - 1))))):
                found.append((at, self._run(kind, at)))
        return found

    def _run(self, kind: Kind, at: float) -> Run:
        draw = self.random
        seconds = kind.seconds * draw.lognormvariate(0.0, kind.spread)
        if draw.random() < 0.1:
            seconds *= draw.uniform(0.01, 0.5)  # it fails
        spec = {} if kind.deadline is None else {"deadline_seconds": int(kind.deadline * kind.seconds)}
        if kind.deadline is not None:
            seconds = min(seconds, kind.deadline * kind.seconds)
        row = Job(
            user_id=kind.user,
            name=f"{kind.name}-{draw.randrange(1000)}",
            spec=spec,
            slots=kind.slots,
            phase=Phase.QUEUED,
        )
        priority = 10 if draw.random() < 0.1 else 0
        return Run(row, kind, seconds, priority, at, draw.lognormvariate(0.0, 0.08))

    def _admit(self, now: float) -> list[Run]:
        state = self._queue(now)
        pending = [self._pending(one) for one in self.waiting.values()]
        found = [one.job for one in decide([state], pending, now=now) if isinstance(one, Admit)]
        admitted = [self.waiting.pop(number) for number in found]
        for one in admitted:
            one.started = now
            one.row.phase, one.row.admitted_at, one.row.running_at = Phase.RUNNING, _moment(now), _moment(now)
            self.running[one.row.pk] = one
            self.waits.append(now - one.submitted)
        return admitted

    def _end(self, run: Run, at: float) -> None:
        self.ended.insert(0, Ended(run.kind.user, holding.stem(run.row.name), run.seconds))
        del self.ended[RECENT:]

    def _ask(self, now: float) -> None:
        """Ask about those that have just begun to wait."""
        new = [one for one in self.waiting.values() if one.submitted == now and not one.is_asked]
        for one in new:
            one.is_asked = True
        asked = [one for one in new if one.row.pk % ASKED_EVERY == 0 and now > WARM_UP]
        if not asked:
            return
        history = History(self.ended)
        pending = [
            replace(self._pending(one), expected=holding.within(one.row, history)) for one in self.waiting.values()
        ]
        found = forecast([self._queue(now, history)], pending, now=now)
        for one in asked:
            told = found.get(one.row.pk)
            one.asked = told if isinstance(told, Range) else None
            one.baseline = expected(self.waits[-BASELINE:])
            self.told.append(one)

    def _queue(self, now: float, history: History | None = None) -> QueueState:
        held = []
        for run in self.running.values():
            one = Holding(
                run.row.pk, {"gpu": run.kind.slots}, holding.ends_by(run.row), queue=NAME, priority=run.priority
            )
            if history is not None:
                assert run.started is not None
                left = run.pace * (run.started + run.seconds - now) if run.kind.reports else None
                one = replace(one, remaining=holding.remaining(run.row, one, left, history, now=_moment(now)))
            held.append(one)
        used = sum(one.amount for one in held)
        return QueueState(NAME, {"gpu": QUOTA}, {"gpu": used}, policy=Policy.BACKFILL, holding=tuple(held))

    @staticmethod
    def _pending(run: Run) -> Pending:
        return Pending(
            run.row.pk, NAME, {"gpu": run.kind.slots}, run.priority, run.submitted, longest=holding.longest(run.row),
            user=run.kind.user,
        )  # fmt: skip


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def measured(month: Month) -> dict[str, list[list[float]]]:
    """Return of the jobs that were told a range: its ends, those of the baseline where there is one, and how long each waited."""
    started = [(one, (one.started or 0.0) - one.submitted) for one in month.told if one.started is not None]
    known = [(one.asked, one.baseline, wait) for one, wait in started if one.asked is not None]
    return {
        "told": [[asked.least, asked.most, wait] for asked, _, wait in known],
        "baseline": [[base.least, base.most, wait] for _, base, wait in known if base is not None],
        "unknown": [[wait] for one, wait in started if one.asked is None],
    }


def main(seed: int) -> dict[str, list[list[float]]]:
    month = Month(Random(seed))
    month.play()
    return measured(month)


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
