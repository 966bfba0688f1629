"""muster-server check: try everything an installation depends on, and say in one table what is wrong and what to write."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.core import checks
from django.core.files.storage import default_storage
from redis import Redis
from redis.exceptions import RedisError
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from common import file_store
from common.errors import ClusterError
from common.text import format_bytes
from jobs import clusters

from . import migrating

SHORTEST_KEY = 32  # characters
LEAST_FREE = 2**30
WIDTH = 120
CLUSTER_SECONDS = 10.0


@dataclass(frozen=True)
class Finding:
    """One line of the table. `remedy`: what to write or run; empty if all is well."""

    what: str
    said: str
    remedy: str = ""
    is_wrong: bool = False


def look() -> list[Finding]:
    """Try each dependency once. Takes as long as their connection timeouts if they are away."""
    return [*_settings(), _database(), _redis(), _files(), _static_files(), _agent(), *_clusters()]


def table(found: list[Finding], *, width: int = WIDTH) -> str:
    """Return the findings as text with a line for each."""
    drawn = Table("", "what", "state", "what to write or run", box=box.SIMPLE, pad_edge=False)
    for one in found:
        mark = "wrong" if one.is_wrong else "note" if one.remedy else "ok"
        drawn.add_row(mark, *(escape(text) for text in (one.what, one.said, one.remedy)))
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as text:
        console.print(drawn)
    return text.get().rstrip()


def _settings() -> Iterator[Finding]:
    messages = checks.run_checks()
    for one in messages:
        yield Finding("settings", str(one.msg), str(one.hint or ""), is_wrong=one.level >= checks.ERROR)
    if len(settings.SECRET_KEY) < SHORTEST_KEY:
        said = f"MUSTER_SECRET_KEY has {len(settings.SECRET_KEY)} characters"
        yield Finding("settings", said, "a longer one: openssl rand -hex 32", is_wrong=True)
    elif not messages:
        yield Finding("settings", "read")


def _database() -> Finding:
    if reason := migrating.obstacle(with_tables=False):
        return Finding("Postgres", reason, "DATABASE_URL=postgres://USER:PASSWORD@HOST:5432/NAME", is_wrong=True)
    if reason := migrating.obstacle(with_tables=True):
        return Finding("Postgres", reason, "muster-server migrate", is_wrong=True)
    return Finding("Postgres", "answers, all tables are there")


def _redis() -> Finding:
    try:
        with Redis.from_url(settings.REDIS_URL, socket_timeout=3, socket_connect_timeout=3) as redis:
            redis.ping()
    except (RedisError, OSError) as error:
        said = f"cannot be used, so jobs start some seconds later and pages are updated less often: {error}"
        return Finding("Redis", said, "REDIS_URL=redis://:PASSWORD@HOST:6379/0", is_wrong=True)
    return Finding("Redis", "answers")


def _files() -> Finding:
    """Try the store of code and logs: a folder that web and tasks share, or a bucket."""
    return _data() if file_store.folder_of(default_storage) else _bucket()


def _bucket() -> Finding:
    try:
        file_store.probe(default_storage)
    except OSError as error:
        remedy = "MUSTER_FILES=s3://KEY:SECRET@BUCKET/PREFIX?endpoint=https://HOST:PORT (docs/object-storage.md)"
        return Finding("files", f"object storage: {error.strerror}", remedy, is_wrong=True)
    return Finding("files", "object storage: files can be written, read and deleted")


def _data() -> Finding:
    folder = Path(settings.DATA_DIR)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        remedy = f"a folder that user {os.geteuid()} may write to, shared by web and tasks: MUSTER_DATA_DIR=/data"
        return Finding("files", f"{folder}: {error.strerror}", remedy, is_wrong=True)
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE:
        return Finding(
            "files", f"{folder} has {format_bytes(free)} left", "more disk, or fewer days in MUSTER_LOG_DAYS"
        )
    return Finding("files", f"{folder} can be written to, {format_bytes(free)} free")


def _static_files() -> Finding:
    root = settings.STATIC_ROOT
    if not root:
        return Finding("static files", "served from the checkout")
    if not (Path(root) / "staticfiles.json").exists():
        return Finding("static files", f"{root} has none", "python manage.py collectstatic --noinput", is_wrong=True)
    said = "collected" if settings.HAS_CHART_LIBRARY else "collected, without the library of charts"
    return Finding(
        "static files",
        said,
        ""
        if settings.HAS_CHART_LIBRARY
        else "python controlplane/npm.py, then python manage.py collectstatic --noinput",
    )


def _agent() -> Finding:
    program = settings.BASE_DIR / "agent" / "agent.pyz"
    if not program.exists():
        return Finding("agent", "agent/agent.pyz is missing", "python -m agent.build", is_wrong=True)
    return Finding("agent", "built")


def _attempts(alias: str) -> int:
    """Count a cluster's attempts. A watch that has just begun knows nothing yet, so it is asked for some seconds."""
    end = time.monotonic() + CLUSTER_SECONDS
    while True:
        try:
            return len(clusters.get(alias).open_attempts())
        except ClusterError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def _clusters() -> Iterator[Finding]:
    if not settings.CLUSTERS:
        yield Finding("cluster", "none, so no job can run", "MUSTER_CLUSTERS (docs/kubernetes.md)")
    for alias in settings.CLUSTERS:
        try:
            attempts = _attempts(alias)
        except ClusterError as error:
            yield Finding(
                f"cluster {alias}", str(error), "its entry of MUSTER_CLUSTERS (docs/kubernetes.md)", is_wrong=True
            )
        except Exception as error:  # wrong options end in whatever the adapter meets first
            said = f"{type(error).__name__}: {error}"
            yield Finding(f"cluster {alias}", said, "its entry of MUSTER_CLUSTERS (docs/kubernetes.md)", is_wrong=True)
        else:
            yield Finding(f"cluster {alias}", f"answers, {attempts} attempts there")
