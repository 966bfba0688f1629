"""muster jobs: the list."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from muster.commands.session import PHASES, echo_json, echo_lines, open_client, output_option
from muster.models import Job
from muster.render import ago, duration, table, terminal_of

GROUPS = ("active", "finished")  # what the server takes in place of a phase
HEADERS = ("ID", "NAME", "PHASE", "QUEUE", "USER", "SIZE", "RANKS", "RAN", "CREATED", "WHY")


@click.command()
@click.option("--phase", type=click.Choice([*PHASES, *GROUPS]), help="Only jobs in this phase.")
@click.option("--queue", metavar="QUEUE", help="Only jobs of this queue.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most this many.")
@output_option
def jobs(*, phase: str | None, queue: str | None, limit: int, output: str) -> None:
    """List jobs, newest first."""
    with open_client() as client:
        found = list(client.jobs(phase=phase, queue=queue, limit=limit))
    if output == "json":
        return echo_json([job.raw for job in found])
    if not found:
        return click.echo(_nothing(is_filtered=bool(phase or queue)))
    now = datetime.now(timezone.utc)
    echo_lines(table(HEADERS, rows=[_row(job, now=now) for job in found], terminal=terminal_of()))


def _nothing(*, is_filtered: bool) -> str:
    if is_filtered:
        return "No such jobs: leave out --phase or --queue to see all."
    return "No jobs yet: `muster submit --queue QUEUE -- COMMAND` makes one, `muster queues` lists the queues."


def _row(job: Job, *, now: datetime) -> tuple[object, ...]:
    shape = f"{job.nodes}x{job.nproc_per_node}"
    return (job.id, job.name, job.phase, job.queue, job.user, shape, _ranks(job), _ran(job, now=now),
            ago(job.created_at, now=now), _why(job))  # fmt: skip


def _ranks(job: Job) -> str:
    """How far the gang has come; of no interest once the job has ended."""
    return f"{job.ranks.running}/{job.ranks.total}" if job.ranks.total and not job.is_finished else ""


def _ran(job: Job, *, now: datetime) -> str:
    return duration(((job.finished_at or now) - job.running_at).total_seconds()) if job.running_at else ""


def _why(job: Job) -> str:
    """A sentence where the phase raises the question."""
    if job.phase in ("succeeded", "running"):
        return ""
    if job.phase == "failed" and job.first_failure:
        return job.first_failure.explanation or job.message
    return job.message or job.reason
