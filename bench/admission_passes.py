"""Fill queues of one cohort, and time passes of the scheduler over them. Prints one JSON line of milliseconds."""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup()

from django.db import connection  # noqa: E402
from django.utils import timezone  # noqa: E402

from accounts.models import Team, User  # noqa: E402
from jobs.core.spec import JobSpec  # noqa: E402
from jobs.core.verdict import RoleView  # noqa: E402
from jobs.models import Job  # noqa: E402
from jobs.scheduling import scheduler, waiting  # noqa: E402
from queues import admission, cohorts  # noqa: E402
from queues.models import Flavor, Queue  # noqa: E402

PASSES, FIRST, LOOKS = 100, 5, 10
QUEUES_OF_A_TEAM, RUNNING, SLOTS = 10, 2, 8  # running jobs of a queue, and the slots of each, which is its whole quota


def main(count: int, queues: int, policy: str) -> dict[str, float]:
    rows = _queues(queues, policy)
    _fill(rows, count)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    scheduler.schedule()  # everybody has a reason
    decisions = list[float]()
    scheduler.admission.decide = _timed(admission.decide, decisions)
    passes = [_pass(rows[turn * 7 % len(rows)], decisions) for turn in range(PASSES + FIRST)][FIRST:]
    why = [_milliseconds(lambda queue=queue: waiting.of_queue(queue)) for queue in rows[:LOOKS]]
    decided = [one for _, one in passes]
    whole = [one for one, _ in passes]
    return {
        "pass_median": round(statistics.median(whole), 1), "pass_p99": round(statistics.quantiles(whole, n=100)[-1], 1),
        "decision_median": round(statistics.median(decided), 1), "decision_p99": round(statistics.quantiles(decided, n=100)[-1], 1),
        "why_median": round(statistics.median(why), 1), "admitted": Job.objects.filter(phase="admitted").count(),
    }  # fmt: skip


def _queues(count: int, policy: str) -> list[Queue]:
    cohorts.make_flavor(by=None, name="gpu", cluster="local")
    cohorts.set_cohort(by=None, name="all")
    flavor = Flavor.objects.get(name="gpu")
    teams = Team.objects.bulk_create([Team(name=f"team-{number}") for number in range(-(-count // QUEUES_OF_A_TEAM))])
    for team in teams:
        cohorts.set_quota(by=None, team=team, flavor="gpu", nominal=QUEUES_OF_A_TEAM * RUNNING * SLOTS, cohort="all")
    return Queue.objects.bulk_create(
        Queue(
            name=f"queue-{number}", team=teams[number // QUEUES_OF_A_TEAM], cluster="local", nominal=RUNNING * SLOTS, flavor=flavor,
            policy=policy, borrowing_limit=None,
        )
        for number in range(count)
    )  # fmt: skip


def _fill(queues: list[Queue], waiting: int) -> None:
    """Every fifth waiting job is twice as large as a running one. Running jobs have deadlines, and so does every second waiting one."""
    user, now = User.objects.create(username="somebody"), timezone.now()
    made = [
        _job(queue, user, SLOTS, f"running-{queue.pk}-{number}", deadline=3600 + 60 * number, phase="running", attempt=1,
             launched_at=now, running_at=now, admitted_at=now)
        for queue in queues for number in range(RUNNING)
    ]  # fmt: skip
    made += [
        _job(queues[number % len(queues)], user, 2 * SLOTS if number % 5 == 4 else SLOTS, f"waiting-{number}",
             deadline=None if number % 2 else 7200, priority=number % 3, created_at=now - timedelta(seconds=waiting - number))
        for number in range(waiting)
    ]  # fmt: skip
    Job.objects.bulk_create(made, batch_size=2000)


def _job(queue: Queue, user: User, slots: int, name: str, *, deadline: int | None, **values: Any) -> Job:
    spec = JobSpec(("torchrun", "train.py"), nodes=1, nproc_per_node=slots, deadline_seconds=deadline).to_json()
    roles = [RoleView("worker", 1, True, True, processes=slots, slots=slots).to_json()]
    return Job(team=queue.team, queue=queue, user=user, name=name, spec=spec, slots=slots, roles=roles, next_reconcile_at=None, **{"phase": "queued", **values})  # fmt: skip


def _pass(queue: Queue, decisions: list[float]) -> tuple[float, float]:
    """Milliseconds of a pass after a job of the queue has ended, and of its decisions."""
    ending = Job.objects.filter(queue=queue, phase__in=["running", "admitted"]).order_by("pk").first()
    if ending is not None:
        Job.objects.filter(pk=ending.pk).update(phase="succeeded", finished_at=timezone.now())
    decisions.clear()
    whole = _milliseconds(lambda: scheduler.schedule_queue(queue.pk))
    return whole, sum(decisions)


def _timed(call: Callable[..., Any], taken: list[float]) -> Callable[..., Any]:
    def timed(*args: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*args, **options)
        finally:
            taken.append(1000 * (time.perf_counter() - began))

    return timed


def _milliseconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
