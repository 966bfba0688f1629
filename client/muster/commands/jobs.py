"""muster jobs: the list, once or repeatedly."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import click

from muster.commands.output import Output, limited, reading
from muster.commands.session import PHASES, open_client, queue_names
from muster.jobs.models import Job
from muster.render import ago, duration

GROUPS = ("active", "finished")  # accepted by the server in place of a phase
HEADERS = ("ID", "NAME", "PHASE", "QUEUE", "USER", "SIZE", "RANKS", "RAN", "CREATED", "WHY")


def _phases(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Accept one phase, or several separated by commas."""
    for phase in (value or "").split(",") if value else ():
        if phase not in PHASES + GROUPS:
            known = ", ".join(repr(name) for name in PHASES + GROUPS)
            raise click.BadParameter(f"{phase!r} is not one of {known}", ctx, param)
    return value


@click.command()
@click.option(
    "--phase",
    metavar="PHASE",
    callback=_phases,
    help="Only jobs in this phase (several with commas), or `active`, or `finished`.",
)
@click.option("--queue", metavar="QUEUE", help="Only jobs in this queue.", shell_complete=queue_names)
@click.option("--name", metavar="NAME", help="Only jobs with this name.")
@click.option("--team", metavar="TEAM", help="Only jobs of this team.")
@click.option("--user", metavar="USER", help="Only jobs submitted by this user.")
@click.option(
    "--kind",
    metavar="KIND",
    help="Only jobs with this kind of failure (several with commas): user_code, data, host_memory, ...",
)
@click.option("--image", metavar="TEXT", help="Only jobs whose image's name has this in it.")
@click.option("--active", "is_active", is_flag=True, help="Only jobs that have not ended; same as --phase active.")
@limited(20)
@click.option("--all", "is_all", is_flag=True, help="Show all, without a limit.")
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--every", "seconds", metavar="S", type=click.FloatRange(min=0.5), default=2, show_default=True,
    help="With --watch: seconds between refreshes.",
)  # fmt: skip
@reading
def jobs(
    *, is_active: bool, is_all: bool, limit: int, is_watching: bool, seconds: float, output: Output, **filters: Any
) -> None:
    """List jobs, newest first."""
    if is_active:
        filters["phase"] = filters["phase"] or "active"
    with open_client() as client:
        while True:
            found = list(client.jobs(limit=None if is_all else limit, **filters))
            if is_watching:
                click.clear()
            _show(found, output=output, is_filtered=any(filters.values()))
            if not is_watching:
                return
            time.sleep(seconds)


def _show(found: Sequence[Job], *, output: Output, is_filtered: bool) -> None:
    now = datetime.now(timezone.utc)
    output.items(
        found,
        ident=lambda job: job.id,
        headers=HEADERS,
        row=lambda job: _row(job, now=now),
        empty=_nothing(is_filtered=is_filtered),
    )


def _nothing(*, is_filtered: bool) -> str:
    if is_filtered:
        return "No jobs match: use fewer filters to see more."
    return "No jobs yet: `muster submit --queue QUEUE -- COMMAND` submits one, `muster queues` lists the queues."


def _row(job: Job, *, now: datetime) -> tuple[object, ...]:
    shape = job.layout.replace(" \N{MULTIPLICATION SIGN} ", "x") or f"{job.nodes}x{job.nproc_per_node}"
    return (job.id, job.name, job.phase, job.queue, job.user, shape, _ranks(job), _ran(job, now=now),
            ago(job.created_at, now=now), _why(job))  # fmt: skip


def _ranks(job: Job) -> str:
    """Return how many ranks run; irrelevant once the job has ended."""
    return f"{job.ranks.running}/{job.ranks.total}" if job.ranks.total and not job.is_finished else ""


def _ran(job: Job, *, now: datetime) -> str:
    return duration(((job.finished_at or now) - job.running_at).total_seconds()) if job.running_at else ""


def _why(job: Job) -> str:
    """Return an explanation where the phase calls for one."""
    if job.phase == "running" and job.progress and job.progress.total and job.progress.seconds_left is not None:
        return (
            f"{min(1.0, job.progress.step / job.progress.total):.0%}, about {duration(job.progress.seconds_left)} left"
        )
    if job.phase in ("succeeded", "running"):
        return ""
    is_why = job.phase in ("failed", "stopping") and job.first_failure
    return (is_why and job.first_failure and job.first_failure.words) or job.message or job.reason
