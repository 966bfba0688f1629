"""Which open jobs and queues use what a team owns, by its name."""

from accounts.models import Team
from jobs.core.lifecycle import TERMINAL
from jobs.core.volumes import mounts
from jobs.models import Job
from queues.models import Queue


def of_secret(team: Team, name: str) -> list[str]:
    """Return the open jobs and the queues of a team that name one of its secrets, as phrases."""
    jobs = Job.objects.filter(team=team, spec__has_key="team_secrets").exclude(phase__in=TERMINAL)
    found = [f"job {job.name}" for job in jobs.order_by("-id") if name in mounts(job.spec["team_secrets"])]
    queues = Queue.objects.filter(team=team, defaults__has_key="team_secrets").order_by("name")
    return [*found, *(f"queue {one.name}" for one in queues if name in mounts(one.defaults["team_secrets"]))]
