"""muster logs: what the ranks printed."""

from __future__ import annotations

from typing import Any

import click

from muster.client import Client
from muster.commands.following import LineWriter, detached, follow
from muster.commands.output import note
from muster.commands.session import job_argument, open_client
from muster.models import LAUNCHER


def _rank(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    if value is None or value == "launcher":
        return None if value is None else LAUNCHER
    if not value.isdigit():
        raise click.BadParameter(f"{value!r} is neither a rank (0, 1, ...) nor `launcher`", ctx, param)
    return int(value)


@click.command()
@job_argument
@click.option("-f", "--follow", "is_following", is_flag=True, help="Keep printing until the job has ended.")
@click.option("--rank", metavar="R", callback=_rank, help="Only this rank, or `launcher`.")
@click.option("--attempt", metavar="N", type=click.IntRange(min=1), help="Only this attempt.")
@click.option("--tail", metavar="N", type=click.IntRange(min=0), help="Begin with the last N lines.")
@click.option("--since-cursor", "cursor", metavar="CURSOR", help="Only what came after; see --show-cursor.")
@click.option("--show-cursor", is_flag=True, help="At the end, print the cursor to the standard error.")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time.")
@click.option("--no-prefix", is_flag=True, help="Leave out which rank a line is from.")
@click.option("--raw", "is_raw", is_flag=True, help="As printed, colours and control characters included.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: an object a line.")
def logs(
    *,
    job: str,
    is_following: bool,
    timestamps: bool,
    no_prefix: bool,
    is_raw: bool,
    output: str,
    show_cursor: bool,
    **asked: Any,
) -> None:
    """Print the output of a job: all ranks merged, or one of them."""
    has_rank = asked["rank"] is None and not no_prefix
    writer = LineWriter(has_rank=has_rank, has_time=timestamps, is_raw=is_raw, is_json=output == "json")
    if is_following and (asked["attempt"] is not None or show_cursor):
        raise click.UsageError("--follow shows the attempts as they come: leave out --attempt and --show-cursor")
    with open_client() as client:
        if is_following:
            return _follow(client, job=job, writer=writer, asked=asked)
        cursor = asked["cursor"]
        for page in client.log_pages(job, **asked):
            writer.write(page.lines)
            cursor = page.cursor or cursor
    if show_cursor:
        note(cursor or "")


def _follow(client: Client, *, job: str, writer: LineWriter, asked: dict[str, Any]) -> None:
    seen = client.job(job)
    try:
        follow(client, job=seen, writer=writer, rank=asked["rank"], tail=asked["tail"], cursor=asked["cursor"])
    except KeyboardInterrupt:
        detached(seen)
