"""muster logs: what the ranks printed."""

from __future__ import annotations

import click

from muster.commands.following import LineWriter, detached, follow
from muster.commands.session import open_client
from muster.models import LAUNCHER


def _rank(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    if value is None or value == "launcher":
        return None if value is None else LAUNCHER
    if not value.isdigit():
        raise click.BadParameter(f"{value!r} is neither a rank (0, 1, ...) nor `launcher`", ctx, param)
    return int(value)


@click.command()
@click.argument("job", metavar="JOB")
@click.option("-f", "--follow", "is_following", is_flag=True, help="Keep printing until the job has ended.")
@click.option("--rank", metavar="R", callback=_rank, help="Only this rank, or `launcher`.")
@click.option("--tail", metavar="N", type=click.IntRange(min=0), help="Begin with the last N lines.")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time.")
def logs(*, job: str, is_following: bool, rank: int | None, tail: int | None, timestamps: bool) -> None:
    """Print the output of a job: all ranks merged, or one of them."""
    writer = LineWriter(has_rank=rank is None, has_time=timestamps)
    with open_client() as client:
        if not is_following:
            return writer.write(client.logs(job, rank=rank, tail=tail))
        seen = client.job(job)
        try:
            follow(client, job=seen, writer=writer, rank=rank, tail=tail)
        except KeyboardInterrupt:
            detached(seen)
