"""Follow each cluster's changes: poke the jobs they belong to, and store replica status updates.

Holds no state of record.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections
from django.utils import timezone

from common import faultpoints
from common.errors import ClusterError
from common.signals import doorbell
from common.telemetry import traces
from jobs import clusters
from jobs.core.verdict import ReplicaUpdate
from queues import clusters as entries

from . import attempt_rows, replica_status

log = logging.getLogger(__name__)

CLUSTERS_SECONDS = 3.0  # before asking again which clusters there are
PAUSE_SECONDS = 2.0  # before watching a failed cluster again
NAMESPACES_SECONDS = 10.0  # before asking again in which namespaces attempts last
AGAIN_SECONDS = 1.0  # before poking again a job whose replicas are all up by its rows


def watch(stop: threading.Event) -> None:
    """Watch every cluster until `stop` is set, also those that are added meanwhile.

    Raises ImproperlyConfigured for one of the setting that can never be watched.
    """
    if problem := clusters.configuration_problem():
        raise ImproperlyConfigured(problem)
    watched: dict[str, tuple[str, threading.Event]] = {}
    while not stop.is_set():
        try:
            _keep_up(watched)
        except (DatabaseError, OSError) as error:
            log.warning("which clusters there are cannot be read: %s; those known are watched", error)
        finally:
            connections.close_all()
        stop.wait(CLUSTERS_SECONDS)
    for _, ended in watched.values():
        ended.set()


def _keep_up(watched: dict[str, tuple[str, threading.Event]]) -> None:
    """Begin to watch clusters that are new or changed, and stop watching those that are gone. By name: the edition."""
    known = entries.entries()
    for alias, (edition, ended) in list(watched.items()):
        if alias not in known or known[alias].edition != edition:
            ended.set()
            del watched[alias]
            log.info("cluster %s: was changed or removed; its watch ends", alias)
    clusters.adapters.drop_removed()
    for alias in known.keys() - watched.keys():
        ended = threading.Event()
        watched[alias] = known[alias].edition, ended
        for act in (follow, write):
            threading.Thread(
                target=_go_on, args=(act, alias, ended), name=f"{act.__name__}-{alias}", daemon=True
            ).start()


def follow(alias: str, stop: threading.Event) -> None:
    """Poke the job of every run that needs a visit."""
    for run in clusters.get(alias).changes():
        if stop.is_set():
            return
        if run:
            job = replica_status.job_of(run)
            with traces.span("change", job=job, cluster=alias), faultpoints.around("watcher.ring"):
                doorbell.poke_now("jobs.reconcile", job)


def write(alias: str, stop: threading.Event) -> None:
    """Store replica status updates, if the cluster sends them by itself.

    Attempts of an earlier setting stay in its namespace, so the rows say what else is to be watched.
    """
    cluster = clusters.get(alias)
    if isinstance(cluster, clusters.Watches):
        writer, asked_at = _writers.setdefault(alias, Writer(alias)), float("-inf")
        for updates in cluster.replica_updates():
            if stop.is_set():
                return
            writer.take(updates)
            if time.monotonic() > asked_at + NAMESPACES_SECONDS:
                cluster.watch(attempt_rows.namespaces(alias))
                asked_at = time.monotonic()


class Writer:
    """Stores updates, and keeps those it could not store, so that a database outage loses nothing."""

    def __init__(self, cluster: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._clock = cluster, clock
        self._waiting: dict[tuple[str, int, str, int, int], ReplicaUpdate] = {}
        self._starting: set[int] = set()
        self._again_at = 0.0

    def take(self, updates: list[ReplicaUpdate]) -> None:
        self._waiting |= {_which(one): one for one in updates}
        if self._waiting:
            with traces.span("replica updates"):
                self._write()
        # Keep poking until the job leaves STARTING: the cached view of the process that visits it may be behind ours.
        if self._starting and self._clock() > self._again_at:
            self._starting = replica_status.complete(self._starting)
            self._again_at = self._clock() + AGAIN_SECONDS
            _ring(self._starting)

    def _write(self) -> None:
        written = replica_status.write(self._waiting.values(), cluster=self._cluster, now=timezone.now())
        self._waiting = {}
        if not self._starting:
            self._again_at = self._clock() + AGAIN_SECONDS
        self._starting |= written.starting
        _ring(written.complete)


def _ring(complete: Iterable[int]) -> None:
    for job in complete:
        doorbell.poke_now("jobs.reconcile", job)


def _which(one: ReplicaUpdate) -> tuple[str, int, str, int, int]:
    return one.run, one.attempt, one.seen.role, one.seen.index, one.seen.incarnation


_writers: dict[str, Writer] = {}


def _go_on(act: Callable[[str, threading.Event], None], alias: str, stop: threading.Event) -> None:
    """Run `act`, and again after transient errors. Returns when `act` does: there is nothing to do then."""
    while not stop.is_set():
        try:
            act(alias, stop)
            return
        except (ClusterError, OSError, DatabaseError) as error:
            log.warning("cluster %s: %s; watching again in %s s", alias, error, PAUSE_SECONDS)
            stop.wait(PAUSE_SECONDS)
        except Exception:  # one job's malformed file must not end the watch of all others
            log.exception("cluster %s: watching again in %s s", alias, PAUSE_SECONDS)
            stop.wait(PAUSE_SECONDS)
        finally:
            connections.close_all()
