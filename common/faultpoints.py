"""Named points where tests can make a process die, to see the effect of a death exactly there.

Off (always, except in those tests) a point costs one check of a constant. On (`CRASH_MARKS` names a folder) a point
kills the process that passes it, once: either its name is in `CRASH_AT` ("store.take.before,cluster.apply.after"), or a
test wrote `<name>.armed` into the folder at run time; that file may name a signal other than KILL. The mark that
remains, `<name>`, proves that the point was reached.

What is between two points is also a span of the trace that runs, if one does (traces.py), under the same name.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import transaction

from .telemetry import traces

# One for every transaction and every external call, except where one transaction of Postgres is all there is (accounts,
# queues); tests/unit/project/test_faultpoints.py finds those without one.
NAMES = (
    "services.submit",
    "services.intend",
    "services.webhook",
    "scheduler.queue",
    "recent_use.note",
    "idle.note",
    "store.take",
    "store.record",
    "store.applied",
    "store.release",
    "store.renew",
    "cluster.observe",
    "cluster.apply",
    "cluster.delete",
    "cluster.end_replicas",
    "cluster.read_log",
    "cluster.placement",
    "kube.owner",
    "kube.agent",
    "kube.secret",
    "kube.missing",
    "kube.claim",
    "kube.inspect",
    "kube.namespace",
    "kube.review",
    "kube.keeper",
    "kube.probe",
    "kube.events",
    "kube.pod",
    "kube.read",
    "kube.look",
    "kube.node",
    "kube.names",
    "kube.delete",
    "kube.remove",
    "kube.disown",
    "kube.close",
    "kube.tidy",
    "mesh.shape",
    "mesh.create",
    "mesh.find",
    "mesh.pods",
    "mesh.label",
    "mesh.delete",
    "kube.list",
    "kube.watch",
    "local.spawn",
    "local.drain",
    "local.volume",
    "local.seal",
    "ingest.checkpoints",
    "ingest.apply",
    "ingest.wake",
    "ingest.note",
    "attempts.complete",
    "failures.write",
    "failures.judged",
    "watcher.ring",
    "watcher.rows",
    "doorbell.task",
    "doorbell.hint",
    "logs.save",
    "logs.read",
    "logs.delete",
    "packing.save",
    "packing.replace",
    "rollups.turn",
    "strays.delete",
    "topology.note",
    "nodes.ask",
    "nodes.list",
    "nodes.record",
    "nodes.forget",
    "checks.start",
    "checks.take",
    "checks.write",
    "collecting.rows",
    "collecting.mark",
    "collecting.folder",
    "removing.rows",
    "removing.job",
    "removing.folder",
    "removing.mark",
    "workspaces.keep",
    "workspaces.create",
    "files.save",
    "files.open",
    "files.delete",
    "garbage.expire",
    "garbage.sweep",
    "garbage.renew",
    "deliveries.claim",
    "deliveries.send",
    "deliveries.record",
    "deliveries.forget",
)
POINTS = tuple(f"{name}.{when}" for name in NAMES for when in ("before", "after"))

_MARKS = os.environ.get("CRASH_MARKS", "")
_AT = frozenset(os.environ.get("CRASH_AT", "").split(",")) - {""}


@contextmanager
def atomic(name: str) -> Iterator[None]:
    """Like `transaction.atomic`, with one point when all is written but not committed, and one right after the commit.

    Nested in another transaction it commits nothing, and the outer one's points stand for both.
    """
    is_outermost = not _MARKS or not transaction.get_connection().in_atomic_block
    with traces.part(name), transaction.atomic():
        yield
        if is_outermost:
            point(f"{name}.before")
    if is_outermost:
        point(f"{name}.after")


@contextmanager
def around(name: str) -> Iterator[None]:
    """Put a point before and one after an external call, or a write that is its own transaction."""
    point(f"{name}.before")
    with traces.part(name):
        yield
    point(f"{name}.after")


def point(name: str) -> None:
    if _MARKS and (number := _drawn(Path(_MARKS), name)):
        signal.pthread_kill(threading.get_ident(), number)  # to this thread: it must not execute another step first


def _drawn(marks: Path, name: str) -> int:
    """Return the signal to send, to the first process that passes while the point is armed; otherwise 0."""
    mark = marks / name
    try:
        os.rename(marks / f"{name}.armed", mark)
        word = mark.read_text().strip() or "KILL"
    except FileNotFoundError:
        if name not in _AT:
            return 0
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return 0
        word = "KILL"
    mark.write_text(f"{os.getpid()} {time.time():.3f} {' '.join(sys.argv)}\n")
    return signal.Signals[f"SIG{word}"]
