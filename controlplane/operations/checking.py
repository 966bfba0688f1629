"""muster-server check: try everything an installation depends on, and say in one table what is wrong and what to write."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.files.storage import Storage, default_storage
from django.db import DatabaseError
from django.http.request import validate_host
from redis import Redis
from redis.exceptions import RedisError
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from common.errors import ClusterError, NotReadYet
from common.files import file_store
from common.signals import doorbell, redis_trouble
from common.text import format_bytes
from jobs import clusters
from jobs.submission import inspecting
from queues.models import Queue

from . import migrating

SHORTEST_KEY = 32  # characters
LEAST_FREE = 2**30
WIDTH = 120
CLUSTER_SECONDS = 10.0
FIRST_LIST_SECONDS = 60.0  # a large cluster, or a busy machine, takes its time


@dataclass(frozen=True)
class Finding:
    """One line of the table. `remedy`: what to write or run; empty if all is well."""

    what: str
    state: str
    remedy: str = ""
    is_wrong: bool = False


def look() -> list[Finding]:
    """Try each dependency once. Takes as long as their connection timeouts if they are away."""
    database = _database()
    queues = [] if database.is_wrong else _queues()
    return [
        *_settings(), _address(), database, _redis(), *_files(), _static_files(), _agent(), *_traces(), *_clusters(), *queues
    ]  # fmt: skip


def table(found: list[Finding], *, width: int = WIDTH) -> str:
    """Return the findings as text with a line for each."""
    drawn = Table("", "what", "state", "what to write or run", box=box.SIMPLE, pad_edge=False)
    for one in found:
        mark = "wrong" if one.is_wrong else "note" if one.remedy else "ok"
        drawn.add_row(mark, *(escape(text) for text in (one.what, one.state, one.remedy)))
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as text:
        console.print(drawn)
    return text.get().rstrip()


def _settings() -> Iterator[Finding]:
    messages = checks.run_checks()
    for one in messages:
        yield Finding("settings", str(one.msg), str(one.hint or ""), is_wrong=one.level >= checks.ERROR)
    if len(settings.SECRET_KEY) < SHORTEST_KEY:
        state = f"MUSTER_SECRET_KEY has {len(settings.SECRET_KEY)} characters"
        yield Finding("settings", state, "a longer one: openssl rand -hex 32", is_wrong=True)
    elif not messages:
        yield Finding("settings", "read")


def _address() -> Finding:
    """Look at where people reach the pages; whether that works from here says nothing about them."""
    if not settings.PUBLIC_URL:
        state = "not set, so messages of webhooks hold no links"
        return Finding("address of pages", state, "MUSTER_PUBLIC_URL=https://HOST")
    parts = urlsplit(settings.PUBLIC_URL)
    host = parts.hostname or ""
    name = f"[{host}]" if ":" in host else host
    if not validate_host(name, settings.ALLOWED_HOSTS):
        state = f"{settings.PUBLIC_URL}, but requests for {name} are refused"
        return Finding(
            "address of pages",
            state,
            f"{name} in MUSTER_ALLOWED_HOSTS, separated by a comma from the others",
            is_wrong=True,
        )
    if (parts.scheme == "https") != settings.MUSTER_HTTPS:
        off = "1" if parts.scheme == "https" else "0, or https:// in MUSTER_PUBLIC_URL"
        state = f"{settings.PUBLIC_URL}, but MUSTER_HTTPS is {'on' if settings.MUSTER_HTTPS else 'off'}"
        return Finding("address of pages", state, f"MUSTER_HTTPS={off}")
    return Finding("address of pages", settings.PUBLIC_URL)


def _database() -> Finding:
    if reason := migrating.obstacle(with_tables=False):
        return Finding("Postgres", reason, "DATABASE_URL=postgres://USER:PASSWORD@HOST:5432/NAME", is_wrong=True)
    if reason := migrating.obstacle(with_tables=True):
        return Finding("Postgres", reason, "muster-server migrate", is_wrong=True)
    return Finding("Postgres", "answers, all tables are there")


def _redis() -> Finding:
    try:
        with Redis.from_url(settings.REDIS_URL, socket_timeout=3, socket_connect_timeout=3) as redis:
            redis.set("muster:check", "1", ex=1)  # a replica answers, but takes nothing
            with redis.pubsub() as channel:
                channel.subscribe(doorbell.CHANNEL)
                channel.get_message(timeout=3)
    except (RedisError, OSError) as error:
        state = "cannot be used, so jobs start some seconds later and pages are updated less often"
        state = f"{state}: {redis_trouble.reason(error)}"
        return Finding("Redis", state, "REDIS_URL=redis://USER:PASSWORD@HOST:6379/0", is_wrong=True)
    return Finding("Redis", "answers, and takes messages")


def _files() -> Iterator[Finding]:
    """Try the store of code and logs, and the one that they move from."""
    if isinstance(default_storage, file_store.MovingStorage):
        yield _store(default_storage.new, "files", "MUSTER_FILES")
        yield _store(default_storage.old, "old files", "MUSTER_OLD_FILES")
    else:
        yield _store(default_storage, "files", "MUSTER_FILES")


def _store(store: Storage, what: str, setting: str) -> Finding:
    """Try a folder that web and tasks share, or a bucket."""
    return _data(what) if file_store.folder_of(store) else _bucket(store, what, setting)


def _bucket(store: Storage, what: str, setting: str) -> Finding:
    try:
        file_store.probe(store)
    except OSError as error:
        remedy = f"{setting}=s3://KEY:SECRET@BUCKET/PREFIX?endpoint=https://HOST:PORT (docs/object-storage.md)"
        return Finding(what, f"object storage: {error.strerror}", remedy, is_wrong=True)
    return Finding(what, "object storage: files can be written, read and deleted")


def _data(what: str) -> Finding:
    folder = Path(settings.DATA_DIR)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        remedy = f"a folder that user {os.geteuid()} may write to, shared by web and tasks: MUSTER_DATA_DIR=/data"
        return Finding(what, f"{folder}: {error.strerror}", remedy, is_wrong=True)
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE:
        return Finding(what, f"{folder} has {format_bytes(free)} left", "more disk, or fewer days in MUSTER_LOG_DAYS")
    return Finding(what, f"{folder} can be written to, {format_bytes(free)} free")


def _static_files() -> Finding:
    root = settings.STATIC_ROOT
    if not root:
        return Finding("static files", "served from the checkout")
    if not (Path(root) / "staticfiles.json").exists():
        return Finding("static files", f"{root} has none", "python manage.py collectstatic --noinput", is_wrong=True)
    state = "collected" if settings.HAS_CHART_LIBRARY else "collected, without the library of charts"
    return Finding(
        "static files",
        state,
        ""
        if settings.HAS_CHART_LIBRARY
        else "python controlplane/operations/npm.py, then python manage.py collectstatic --noinput",
    )


def _agent() -> Finding:
    program = settings.BASE_DIR / "agent" / "agent.pyz"
    if not program.exists():
        return Finding("agent", "agent/agent.pyz is missing", "python -m agent.build", is_wrong=True)
    return Finding("agent", "built")


def _traces() -> Iterator[Finding]:
    """Send the collector nothing, as it would get spans."""
    if not settings.MUSTER_TRACES:
        return
    from common.telemetry import trace_export  # which imports OpenTelemetry

    if obstacle := trace_export.obstacle(settings.MUSTER_TRACES, headers=settings.MUSTER_TRACES_HEADERS):
        remedy = "MUSTER_TRACES=http://HOST:4318, its credentials in OTEL_EXPORTER_OTLP_HEADERS (docs/traces.md)"
        yield Finding("traces", f"{settings.MUSTER_TRACES}: {obstacle}", remedy, is_wrong=True)
    else:
        yield Finding("traces", f"{settings.MUSTER_TRACES} takes spans")


def _queues() -> Iterator[Finding]:
    for queue in Queue.objects.exclude(cluster__in=clusters.names()).order_by("name"):
        yield Finding(
            f"queue {queue.name}",
            f"is on cluster {queue.cluster}, which is no cluster of this installation, so its jobs do not run",
            f'MUSTER_CLUSTERS={{"{queue.cluster}": {{"BACKEND": ..., "OPTIONS": ...}}}} (docs/kubernetes.md)',
            is_wrong=True,
        )
    for queue in Queue.objects.filter(cluster__in=clusters.names()).order_by("name"):
        room = clusters.room_of(queue.cluster)
        if room and queue.nominal > room.slots:
            yield Finding(
                f"queue {queue.name}",
                f"has {queue.nominal} slots, and this machine has memory for {room.slots}; further jobs wait",
                f"a quota of {room.slots}, or less memory for each slot in MUSTER_LOCAL_SLOT_MIB",
            )


def _attempts(alias: str) -> int:
    """Count a cluster's attempts. A watch that has just begun knows nothing yet, so it is asked until its list has come."""
    began = time.monotonic()
    while True:
        try:
            return len(clusters.get(alias).open_attempts())
        except ClusterError as error:
            longest = FIRST_LIST_SECONDS if isinstance(error, NotReadYet) else CLUSTER_SECONDS
            if time.monotonic() > began + longest:
                raise
            time.sleep(0.2)


def _names() -> list[str]:
    """Return the clusters; those of the setting alone where the database is not ready, which is told elsewhere."""
    try:
        return clusters.names()
    except DatabaseError:
        return list(settings.CLUSTERS)


def _clusters() -> Iterator[Finding]:
    known = _names()
    if not known:
        yield Finding("cluster", "none, so no job can run", "MUSTER_CLUSTERS (docs/kubernetes.md)")
    for alias in known:
        try:
            attempts = _attempts(alias)
        except ClusterError as error:
            yield Finding(f"cluster {alias}", str(error), inspecting.SETTING, is_wrong=True)
        except Exception as error:  # wrong options end in whatever the adapter meets first
            state = f"{type(error).__name__}: {error}"
            yield Finding(f"cluster {alias}", state, inspecting.SETTING, is_wrong=True)
        else:
            yield Finding(f"cluster {alias}", f"answers, {attempts} attempts there")
            for one in inspecting.inspect(alias):
                if one.state != "ok":
                    yield Finding(f"cluster {alias}, {one.about}", one.words, one.remedy, is_wrong=one.state == "wrong")
