"""Tasks processes that may die: each is forked by a process that has imported the program, so that restarts are cheap.

Each line of JSON on stdin starts a life (`Life`); its exit code is printed, and -9 is a death at a fault point.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import django

from tests.support.patience import until

LONGEST_SECONDS = 300.0  # only turns hanging into a failure


@dataclass(frozen=True)
class Life:
    """What to do until the job is in one of these phases. `ahead` moves the life's clock forward, so that leases expire.

    `user` and `queue` are names, used to submit.
    """

    do: str
    cluster: str = "rig"
    job: int = 0
    phases: list[str] = field(default_factory=list)
    ahead: float = 0.0
    user: str = ""
    queue: str = ""


def main() -> None:
    django.setup()
    from jobs import tasks  # noqa: F401 - imported once, before forking

    for line in sys.stdin:
        print(_live_apart(Life(**json.loads(line))), flush=True)


def _live_apart(life: Life) -> int:
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        LIVES[life.do](life)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _visit(life: Life) -> None:
    """Schedule, visit and check the phase until it is reached, as the sweeper does."""
    from common.signals import doorbell
    from jobs.control.reconciler import visit
    from jobs.control.store import DjangoStore
    from jobs.models import Job
    from jobs.scheduling import scheduler

    clock, cluster = _clock(life.ahead), _cluster(life)
    until(lambda: (
        scheduler.schedule(),
        visit(life.job, store=DjangoStore(), clusters=lambda _: cluster, clock=clock, owner=f"visitor:{os.getpid()}"),
        Job.objects.get(pk=life.job).phase in life.phases,
    )[-1])  # fmt: skip
    doorbell.drain(LONGEST_SECONDS)


def _watch(life: Life) -> None:
    """Follow the cluster as the watcher does, with short watches; ends only by dying."""
    from jobs.clusters.kubernetes.watch import reflector
    from jobs.control import watcher

    reflector.WATCH_SECONDS = 1
    watcher.follow(life.cluster, threading.Event())


def _submit(life: Life) -> None:
    from accounts.models import User
    from jobs import services
    from queues.models import Queue

    sent = {"command": "torchrun train.py", "nodes": 2, "nproc_per_node": 1}
    user, queue = User.objects.get(username=life.user), Queue.objects.get(name=life.queue)
    services.submit(user=user, queue=queue, sent=sent)


def _write(life: Life) -> None:
    """The watcher's other thread; ends only by dying."""
    from jobs.control import watcher

    watcher.write(life.cluster, threading.Event())


def _look(life: Life) -> Any:
    """Watch until the caches are filled."""
    cluster = _cluster(life)
    view = cluster.view()
    until(lambda: view.pods.as_of and view.owners.as_of)
    return cluster


def _tidy(life: Life) -> None:
    _look(life).tidy()


def _strays(life: Life) -> None:
    """Sweep orphans as beat does, once the caches are filled."""
    from jobs import clusters
    from jobs.control import orphans

    view = clusters.get(life.cluster).view()
    until(lambda: view.pods.as_of and view.owners.as_of)
    orphans.sweep(life.cluster, now=_clock(life.ahead)())


def _keep(life: Life) -> None:
    """Go one step on with the keepers of claims, as beat does; nobody else works on them by this life's time."""
    from datetime import timedelta

    from jobs import clusters
    from jobs.control import keeping
    from volumes.models import KeeperVisit

    clusters.get = lambda _: _cluster(life)
    KeeperVisit.objects.update(busy_until=None)
    keeping.keep_all(now=_clock(life.ahead)() + timedelta(days=1))


def _check(life: Life) -> None:
    """Go one step on with checks of clusters, as beat does; nobody else works on them by this life's time."""
    from jobs import clusters
    from jobs.control import cluster_checks
    from jobs.models import ClusterCheck

    clusters.get = lambda _: _cluster(life)
    now = _clock(life.ahead)()
    ClusterCheck.objects.update(due_at=now)
    cluster_checks.go_on(now=now)


LIVES: dict[str, Callable[[Life], None]] = {
    "visit": _visit,
    "watch": _watch,
    "write": _write,
    "submit": _submit,
    "look": _look,
    "tidy": _tidy,
    "strays": _strays,
    "keep": _keep,
    "check": _check,
}


def _cluster(life: Life) -> Any:
    from django.conf import settings

    from jobs.clusters.kubernetes.adapter import KubernetesCluster

    options = settings.CLUSTERS[life.cluster]["OPTIONS"]
    return KubernetesCluster(clock=lambda: time.time() + life.ahead, **options)


def _clock(ahead: float) -> Callable[[], datetime]:
    from django.utils import timezone

    return lambda: timezone.now() + timedelta(seconds=ahead)


if __name__ == "__main__":
    main()
