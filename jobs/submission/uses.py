"""Which open jobs and queues use what a team owns, by its name."""

from accounts.models import Team
from jobs.core.lifecycle import TERMINAL
from jobs.core.volumes import mounts
from jobs.models import Job
from queues.models import Queue


def of_secret(team: Team, name: str) -> list[str]:
    """Return the open jobs and the queues of a team that name one of its secrets, as phrases."""
    return _naming("team_secrets", team, name)


def of_volume(team: Team, name: str) -> list[str]:
    """The same of a volume."""
    return _naming("volumes", team, name)


def _naming(field: str, team: Team, name: str) -> list[str]:
    jobs = Job.objects.filter(team=team, spec__has_key=field).exclude(phase__in=TERMINAL).order_by("-id")
    found = [f"job {job.name}" for job in jobs.only("name", "spec") if name in mounts(job.spec[field])]
    queues = Queue.objects.filter(team=team, defaults__has_key=field).order_by("name")
    return [*found, *(f"queue {one.name}" for one in queues if name in mounts(one.defaults[field]))]
