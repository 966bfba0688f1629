"""`manage.py team_logs TEAM`: show the size of a team's logs, set the team's own limits, and free space."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import QuerySet
from django.utils import timezone

from accounts.models import Team
from jobs.logs import usage
from jobs.logs.retention import delete_log
from jobs.models import Job, LogBudget

DEFAULT = "default"
LARGEST = 10


def limit(text: str) -> int | None:
    """Return bytes, or None for the installation's own limit. Raises CommandError."""
    if text == DEFAULT:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) >= 1 << 63:
        raise CommandError(f"{text} is not a number of bytes; give a whole number, 0 for no limit, or {DEFAULT}")
    return int(text)


class Command(BaseCommand):
    help = "Show how much space a team's logs take, change its limits, and delete logs of finished jobs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("team")
        parser.add_argument(
            "--job-bytes", metavar="N", help=f"limit of one job's log; 0: no limit; {DEFAULT} restores the default"
        )
        parser.add_argument(
            "--team-bytes", metavar="N", help=f"limit of all logs together; 0: no limit; {DEFAULT} restores the default"
        )
        parser.add_argument(
            "--delete-job", metavar="ID", type=int, action="append", default=[], help="delete this job's log"
        )
        parser.add_argument(
            "--delete-older-than", metavar="DAYS", type=float, help="delete logs of jobs that ended before"
        )
        parser.add_argument("--dry-run", action="store_true", help="only show what would be deleted")

    def handle(self, *args: Any, **options: Any) -> None:
        team = Team.objects.filter(name=options["team"]).first()
        if team is None:
            known = ", ".join(Team.objects.order_by("name").values_list("name", flat=True)) or "none yet"
            raise CommandError(f"no team {options['team']}; there are {known}")
        _change(team, options)
        verb = "would delete" if options["dry_run"] else "deleted"
        for job in _chosen(team, options):
            if not options["dry_run"]:
                delete_log(job=job, by=None)
            self.stdout.write(f"{verb} the log of job {job.pk} {job.name}")
        self.stdout.write(_summary(team))
        for job in Job.objects.filter(team=team, log_bytes__gt=0).order_by("-log_bytes")[:LARGEST]:
            self.stdout.write(f"  {job.log_bytes:>15,} bytes  job {job.pk} {job.name}")


def _change(team: Team, options: dict[str, Any]) -> None:
    asked = {name: limit(options[name]) for name in ("job_bytes", "team_bytes") if options[name] is not None}
    if asked:
        LogBudget.objects.update_or_create(team=team, defaults=asked)
        usage.forget()


def _chosen(team: Team, options: dict[str, Any]) -> QuerySet[Job]:
    jobs = Job.objects.filter(team=team, finished_at__isnull=False, logs_collected_at=None).order_by("pk")
    if unknown := set(options["delete_job"]) - set(jobs.values_list("pk", flat=True)):
        raise CommandError(f"job {min(unknown)} is not a finished job of team {team.name} with a log")
    chosen = jobs.filter(pk__in=options["delete_job"])
    if options["delete_older_than"] is not None:
        chosen |= jobs.filter(finished_at__lt=timezone.now() - timedelta(days=options["delete_older_than"]))
    return chosen


def _summary(team: Team) -> str:
    used, budget = usage.by_team(team.pk).get(team.pk, 0), usage.budget_of(team.pk)
    return (
        f"team {team.name}: logs take {used:,} of {budget.team_bytes:,} bytes; one job's log may take {budget.job_bytes:,} "
        "(0 is no limit)"
    )
