"""Follow each cluster's changes and wake the jobs they belong to. One thread per cluster; it holds no truth."""

import logging
import threading
import time

from django.conf import settings

from controlplane import crash, doorbell
from controlplane.errors import ClusterError

from . import clusters

log = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0  # before a cluster that failed is watched again


def watch(stop: threading.Event) -> None:
    """Watch every configured cluster until `stop` is set."""
    threads = [
        threading.Thread(target=follow, args=(alias, stop), name=f"watch-{alias}", daemon=True)
        for alias in settings.CLUSTERS
    ]
    for thread in threads:
        thread.start()
    stop.wait()


def follow(alias: str, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            for run in clusters.get(alias).changes():
                if stop.is_set():
                    return
                if run:
                    with crash.around("watcher.ring"):
                        doorbell.poke_now("jobs.reconcile", job_of(run))
        except (ClusterError, OSError) as error:
            log.warning("cluster %s: %s; watching again in %s s", alias, error, PAUSE_SECONDS)
            time.sleep(PAUSE_SECONDS)


def job_of(run: str) -> int:
    """The job's id at the head of its run's name."""
    return int(run.partition("-")[0])
