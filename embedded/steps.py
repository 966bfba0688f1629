"""Steps that need Django: short processes that the supervisor runs, `python -m embedded.steps VERB ...`.

Each prints one JSON value. The supervisor itself never imports Django, and stays small.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup()

from django.conf import settings  # noqa: E402 - needs what the lines above set up
from django.core.management import call_command  # noqa: E402
from django.db import transaction  # noqa: E402
from muster.http import config  # noqa: E402

from accounts import people  # noqa: E402
from accounts.models import Membership, Role, Team, Token, User  # noqa: E402
from common.errors import MusterError  # noqa: E402
from jobs import clusters, services  # noqa: E402
from jobs.clusters.local.devices import of_this_machine  # noqa: E402
from jobs.core.lifecycle import Phase  # noqa: E402
from jobs.models import Job  # noqa: E402
from queues.models import Queue, Resource  # noqa: E402

from . import static_files  # noqa: E402

ADMIN = "admin"
SUSPEND_SECONDS = 40.0


def prepare(url: str) -> dict[str, Any]:
    """Create the tables, and on the first start a team, a queue and an administrator; return which jobs can go on."""
    if settings.STATIC_ROOT:
        static_files.collect(Path(settings.STATIC_ROOT))
    call_command("migrate", verbosity=0, interactive=False)
    password = None
    if not User.objects.exists():
        made, until = people.first_password()
        password = os.environ.get("MUSTER_ADMIN_PASSWORD") or made
        _first_start(password, until)
    _log_in(url)
    waiting = Job.objects.filter(pk__in=_noted(), phase=Phase.SUSPENDED)
    going = Job.objects.active().exclude(phase=Phase.SUSPENDED).order_by("-pk")
    queue = Queue.objects.filter(name="default").first()
    room = clusters.room_of(queue.cluster) if queue else None
    slots = queue.nominal if queue else 0
    return {
        "password": password,
        "slots": min(slots, room.slots) if room else slots,
        "user": _administrator().get_username(),
        "suspended": list(waiting.values_list("pk", flat=True)),
        "active": list(going.values_list("pk", flat=True)),
    }


def reset_password() -> dict[str, Any]:
    user = _administrator()
    password = people.give_password(username=user.get_username())
    return {"user": user.get_username(), "password": password}


def suspend() -> dict[str, Any]:
    """Suspend the jobs of this machine, record them, and wait until their processes are gone."""
    mine = [job for job in _local_jobs() if job.phase != Phase.SUSPENDED]
    asked = sorted((job for job in mine if _suspend(job)), key=lambda job: job.pk)
    if asked:
        _note(sorted({*_noted(), *(job.pk for job in asked)}))
    left = _wait_suspended([job.pk for job in asked])
    return {"suspended": [job.pk for job in asked], "left": left}


def resume() -> dict[str, Any]:
    """Resume what the last stop suspended."""
    waiting = list(Job.objects.filter(pk__in=_noted(), phase=Phase.SUSPENDED).select_related("team"))
    for job in waiting:
        services.resume(job=job, by=_administrator())
    _note([])
    return {"resumed": [job.pk for job in waiting]}


def forget() -> dict[str, Any]:
    """Do not offer to resume again: the offer was declined. The jobs stay suspended."""
    _note([])
    return {}


def _first_start(password: str, until: datetime) -> None:
    """Create the administrator, the team and the queue.

    The first password must be changed once other hosts are served; see accounts/signin/initial_password.py.
    """
    gpus = len(of_this_machine())
    resource, nominal = (Resource.GPU, gpus) if gpus else (Resource.CPU, max(4, os.cpu_count() or 1))
    with transaction.atomic():
        user = User.objects.create_superuser(ADMIN, password=password, first_password_until=until)
        team = Team.objects.get_or_create(name="demo")[0]
        Membership.objects.create(team=team, user=user, role=Role.ADMIN)
        values = {"team": team, "cluster": "local", "resource": resource, "nominal": nominal, "gpus_per_node": gpus}
        Queue.objects.get_or_create(name="default", defaults=values)


def _log_in(url: str) -> None:
    """Give bin/muster a token for this address; keep its current one while that is valid."""
    path = Path(os.environ["MUSTER_CONFIG"])
    known = config.load(path)
    token = known.servers["demo"].token if "demo" in known.servers else ""
    if not Token.objects.valid().filter(digest=Token.digest_of(token)).exists():
        token = Token.issue(_administrator(), "bin/muster", scope="manage")[1]
    server = config.Server(url, token, _administrator().get_username())
    config.save(known.with_server("demo", server=server), path=path)


def _administrator() -> User:
    """Return `admin`, or an administrator that replaced it."""
    found = User.objects.filter(is_superuser=True, is_active=True)
    return found.filter(username=ADMIN).first() or found.order_by("pk")[0]


def _local_jobs() -> list[Job]:
    here = [name for name, one in settings.CLUSTERS.items() if str(one["BACKEND"]).endswith(".LocalCluster")]
    # Waiting jobs come first: they must not be admitted to the slots that the others free.
    found = Job.objects.active().filter(queue__cluster__in=here).select_related("queue", "team")
    return sorted(found, key=lambda job: job.phase != Phase.QUEUED)


def _suspend(job: Job) -> bool:
    if job.suspended or job.cancel_requested_at:
        return True  # its processes must still be waited for
    try:
        return bool(services.suspend(job=job, by=_administrator()).suspended)
    except MusterError:  # it has just finished
        return False


def _wait_suspended(jobs: list[int]) -> list[int]:
    until = time.monotonic() + SUSPEND_SECONDS
    while left := list(
        Job.objects.active().filter(pk__in=jobs).exclude(phase=Phase.SUSPENDED).values_list("pk", flat=True)
    ):
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    return left


def _noted() -> list[int]:
    path = settings.DATA_DIR / "suspended.json"
    return list(json.loads(path.read_text())) if path.exists() else []


def _note(jobs: list[int]) -> None:
    from .files import write_json

    write_json(settings.DATA_DIR / "suspended.json", value=jobs)


VERBS: dict[str, Callable[..., dict[str, Any]]] = {
    "prepare": prepare,
    "reset-password": reset_password,
    "suspend": suspend,
    "resume": resume,
    "forget": forget,
}

if __name__ == "__main__":
    print(json.dumps(VERBS[sys.argv[1]](*sys.argv[2:])))
