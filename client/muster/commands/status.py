"""muster status: one job, and why it failed."""

from __future__ import annotations

import math
from datetime import datetime, timezone

import click

from muster.commands.durations import span
from muster.commands.output import Output, reading, without_empty_columns
from muster.commands.parts import RANK_HEADERS, may_start, pod_words, rank_row
from muster.commands.session import job_argument, open_client
from muster.jobs.models import Failure, Job, Progress, Rank
from muster.jobs.models_jobs import Replica
from muster.jobs.models_waiting import Waiting
from muster.render import Terminal, ago, clock, command_line, duration, printable, table, terminal_of, uncoloured


@click.command()
@job_argument
@reading
def status(*, job: str, output: Output) -> None:
    """Show one job: phase, times, ranks, and the first failure."""
    with open_client() as client:
        seen = client.job(job)
        ranks = client.ranks(seen) if output == Output() else []
        replicas = client.replicas(seen) if output == Output() and seen.phase == "running" else []
    output.item(seen, ident=seen.id, lines=lambda: _lines(seen, ranks=ranks, replicas=replicas))


def _lines(seen: Job, *, ranks: list[Rank], replicas: list[Replica]) -> list[str]:
    now, terminal = datetime.now(timezone.utc), terminal_of()
    return [
        f"{terminal.phase(seen.phase)}  {terminal.bold(printable(seen.name))} (job {seen.id})",
        *_facts(seen, now=now),
        *_silences(replicas, now=now),
        *_rank_table(ranks, now=now, terminal=terminal),
        *_failure(seen.first_failure, job=seen, terminal=terminal),
    ]


def _facts(job: Job, *, now: datetime) -> list[str]:
    facts = {
        "message": job.message or job.reason,
        **_waiting(job.waiting),
        "queue": f"{job.queue} (team {job.team}), by {job.user}",
        "command": command_line(job.command),
        "size": _size(job),
        "pods": ", ".join(pod_words(job.raw)),
        "progress": _progress(job.progress),
        "attempt": f"{job.attempt}, {job.failures} failed, {job.max_retries} retries allowed",
        "restart": job.on_failure,
        "created": f"{clock(job.created_at)} ({ago(job.created_at, now=now)})" if job.created_at else "",
        # Of a later attempt only its own times are known: what came between is in `muster events`.
        "admitted": _after(job.admitted_at, since=job.created_at if job.attempt < 2 else None, what="queued"),
        "running": _after(job.running_at, since=job.admitted_at, what="starting"),
        "finished": _after(job.finished_at, since=job.running_at, what="running"),
        "removed": _removal(job),
        "page": job.url,
    }
    return [f"  {name:<9} {printable(text)}" for name, text in facts.items() if text]


def _waiting(one: Waiting | None) -> dict[str, str]:
    if one is None:
        return {}
    held = [f"job {held.id} ({held.name}, {held.user}): {held.slots}" for held in one.holders]
    return {
        "message": one.sentence,
        "position": "" if one.position is None else f"{one.position} in its queue",
        "start": may_start(one),
        "held by": "; ".join(held),
    }


def _removal(job: Job) -> str:
    """Return when the job is removed, as a time once it has ended."""
    if job.ttl_seconds is None:
        return ""
    if job.removal_at is None or job.finished_at is None:
        return f"{span(job.ttl_seconds)} after its end"
    return f"{span((job.removal_at - job.finished_at).total_seconds())} after its end, from {clock(job.removal_at)} on"


def _size(job: Job) -> str:
    if job.layout and job.min_nodes is None:
        total, planned = job.ranks.total, _product(job.layout)
        if planned and total > planned:  # the command starts more of them itself
            return f"{job.layout} = {planned} rank{'' if planned == 1 else 's'} planned, {total} started"
        return f"{job.layout} = {total} rank{'' if total == 1 else 's'}" if total else job.layout
    return f"{job.span} nodes x {job.nproc_per_node} processes"


TIMES = " \N{MULTIPLICATION SIGN} "  # in a layout: nodes and processes of each


def _product(layout: str) -> int:
    """Return how many ranks a layout of two numbers has; 0 for one of several roles."""
    numbers = layout.split(TIMES)
    return math.prod(map(int, numbers)) if all(number.isdecimal() for number in numbers) else 0


def _progress(progress: Progress | None) -> str:
    """Return how far the job is: `step 12,000 of 50,000 (24 %), about 2h 05m left`."""
    if progress is None or progress.total < 1:
        return ""
    left = "" if progress.seconds_left is None else f", about {duration(progress.seconds_left)} left"
    return f"step {progress.step:,} of {progress.total:,} ({min(1.0, progress.step / progress.total):.0%}){left}"


def _silences(replicas: list[Replica], *, now: datetime) -> list[str]:
    """Return a line for each replica whose agent has stopped reporting, so that its ranks' states may be old."""
    cause = "its agent is stopped, or cannot reach the server"
    silent = [(printable(one.name), one.last_heard_at or one.started_at) for one in replicas if one.is_silent]
    return [f"  silent    {name}: last heard from {ago(since, now=now)}; {cause}" for name, since in silent]


def _after(moment: datetime | None, *, since: datetime | None, what: str) -> str:
    """Return the time, and how long the preceding stage took."""
    if not moment:
        return ""
    is_known = since is not None and since <= moment
    return (
        f"{clock(moment)} (after {duration((moment - since).total_seconds())} {what})"
        if since and is_known
        else clock(moment)
    )


def _rank_table(ranks: list[Rank], *, now: datetime, terminal: Terminal) -> list[str]:
    if not ranks:
        return []
    last = max(rank.attempt for rank in ranks)
    shown = sorted((rank for rank in ranks if rank.attempt == last), key=lambda rank: rank.rank)
    headers, rows = without_empty_columns(RANK_HEADERS, rows=[rank_row(rank, now=now) for rank in shown])
    return ["", *table(headers, rows=rows, terminal=terminal)]


def _failure(failure: Failure | None, *, job: Job, terminal: Terminal) -> list[str]:
    if failure is None:
        return []
    head = terminal.coloured(f"first failure: {printable(failure.words)}", colour="red")
    likely = "likely" if failure.certainty == "likely" and failure.kind != "unknown" else ""
    kind = " ".join(filter(None, [likely, failure.kind.replace("_", " ")]))
    late = "reported after the end" if failure.after_end else ""
    node = f"blames node {printable(failure.node)}" if failure.node else ""
    place = ", ".join(filter(None, [kind, failure.replica, clock(failure.at), node, late]))
    lines = [f"  | {printable(uncoloured(line))}" for line in failure.traceback or failure.last_lines]
    rank = "" if failure.rank is None else f" --rank {failure.rank}"
    more = terminal.dim(f"`muster logs {job.id}{rank}` shows the whole output")
    hint = [f"hint: {printable(failure.hint)}"] if failure.hint else []
    return ["", f"{head} ({place})" if place else head, *hint, *lines, more]
