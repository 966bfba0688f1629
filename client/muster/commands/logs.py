"""muster logs: what the ranks printed."""

from __future__ import annotations

import sys
from typing import Any

import click

from muster.client import Client
from muster.commands.following import LineWriter, detached, follow
from muster.commands.output import note
from muster.commands.session import job_argument, open_client
from muster.jobs.models import LAUNCHER
from muster.render import inert


def _rank(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    if value is None or value == "launcher":
        return None if value is None else LAUNCHER
    if not value.isdigit():
        raise click.BadParameter(f"{value!r} is neither a rank (0, 1, ...) nor `launcher`", ctx, param)
    return int(value)


@click.command()
@job_argument
@click.option("-f", "--follow", "is_following", is_flag=True, help="Keep printing until the job ends.")
@click.option("--rank", metavar="R", callback=_rank, help="Only this rank, or `launcher`.")
@click.option(
    "--replica", metavar="NAME", help="Only this replica, such as worker-0; of a Ray job head-0 is the driver."
)
@click.option("--attempt", metavar="N", type=click.IntRange(min=1), help="Only this attempt.")
@click.option("--tail", metavar="N", type=click.IntRange(min=0), help="Start with the last N lines (at most 10,000).")
@click.option("--since-cursor", "cursor", metavar="CURSOR", help="Start after this cursor; see --show-cursor.")
@click.option("--show-cursor", is_flag=True, help="Print the cursor to standard error at the end.")
@click.option("--timestamps", is_flag=True, help="Prefix each line with its time.")
@click.option("--no-prefix", is_flag=True, help="Omit the rank before each line.")
@click.option("--raw", "is_raw", is_flag=True, help="Print the log unescaped, with its colours and control characters.")
@click.option("--find", "words", metavar="TEXT", help="Only lines that contain this text.")
@click.option("--regex", "is_regex", is_flag=True, help="Treat --find TEXT as a regular expression (RE2).")
@click.option("--text", "is_whole", is_flag=True, help="The whole log of an attempt, as plain text.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json prints one object per line."
)
def logs(
    *,
    job: str,
    is_following: bool,
    timestamps: bool,
    no_prefix: bool,
    is_raw: bool,
    output: str,
    show_cursor: bool,
    words: str | None,
    is_regex: bool,
    is_whole: bool,
    **asked: Any,
) -> None:
    """Print the log of a job: all ranks merged, one rank, or one replica."""
    has_rank = asked["rank"] is None and not no_prefix
    writer = LineWriter(
        has_rank=has_rank, has_time=timestamps, is_raw=is_raw, is_json=output == "json", replica=asked["replica"]
    )
    if is_following and (asked["attempt"] is not None or show_cursor):
        raise click.UsageError("--follow shows every new attempt: omit --attempt and --show-cursor")
    if is_regex and words is None:
        raise click.UsageError("--regex says what --find gives: add --find EXPRESSION")
    with open_client() as client:
        if words is not None:
            return _find(client, job=job, words=words, is_regex=is_regex, writer=writer, asked=asked)
        if is_whole:
            return _text(client, job=job, asked=asked, is_raw=is_raw)
        if is_following:
            return _follow(client, job=job, writer=writer, asked=asked)
        cursor = asked["cursor"]
        for page in client.log_pages(job, **asked):
            writer.write(page.lines)
            cursor = page.cursor or cursor
    if show_cursor:
        note(cursor or "")


def _find(
    client: Client, *, job: str, words: str, is_regex: bool, writer: LineWriter, asked: dict[str, Any]
) -> None:  # fmt: skip
    """Print matching lines; exits like grep: 1 where nothing was found."""
    where = {name: asked[name] for name in ("rank", "replica", "attempt")}
    found = client.search_logs(job, words, regex=is_regex, **where)
    writer.write(found)
    if not found:
        click.get_current_context().exit(1)


def _text(client: Client, *, job: str, asked: dict[str, Any], is_raw: bool) -> None:
    """Print line by line, so that a log of any length needs little memory here."""
    left = ""
    for piece in client.log_text(job, rank=asked["rank"], replica=asked["replica"], attempt=asked["attempt"]):
        *lines, left = (left + piece).split("\n")
        sys.stdout.writelines(f"{line if is_raw else inert(line)}\n" for line in lines)
    sys.stdout.write(left if is_raw else inert(left))
    sys.stdout.flush()


def _follow(client: Client, *, job: str, writer: LineWriter, asked: dict[str, Any]) -> None:
    seen = client.job(job)
    place = {name: asked[name] for name in ("rank", "replica", "tail", "cursor")}
    try:
        follow(client, job=seen, writer=writer, **place)
    except KeyboardInterrupt:
        detached(seen)
