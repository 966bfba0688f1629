"""muster attempts, ranks, replicas, events, checkpoints: the parts and the history of a job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import click

from muster.commands.output import Output, note, reading
from muster.commands.session import job_argument, open_client
from muster.jobs.models import Event, Rank
from muster.jobs.models_jobs import Attempt, Checkpoint, Replica
from muster.jobs.models_waiting import Waiting
from muster.render import ago, clock, duration, printable, size

SHOWN = 3  # jobs that are named
DAY_SECONDS = 86400
ATTEMPT = click.option(
    "--attempt", metavar="N", type=click.IntRange(min=1), help="Attempt to show (default: the newest)."
)
RANK_HEADERS = (
    "RANK",
    "NODE",
    "REPLICA",
    "STATE",
    "STEP",
    "CPU",
    "RSS",
    "GPU",
    "GPU MEMORY",
    "LAST LINE",
    "EXIT",
    "NOTE",
)


def may_start(waiting: Waiting | None) -> str:
    """Return when a waiting job may start, as "between 14:10 and 14:40", or on which jobs that depends."""
    if waiting is None:
        return ""
    if waiting.starts is None or waiting.starts.earliest is None or waiting.starts.latest is None:
        jobs = ", ".join(map(str, waiting.unknown[:SHOWN]))
        more = f" and {len(waiting.unknown) - SHOWN} more" if len(waiting.unknown) > SHOWN else ""
        return f"unknown: it depends on job {jobs}{more}, of which nothing is known" if jobs else ""
    early, late = waiting.starts.earliest.astimezone(), waiting.starts.latest.astimezone()
    form = "%H:%M" if (late - datetime.now(timezone.utc)).total_seconds() < DAY_SECONDS else "%b %d %H:%M"
    first, last = early.strftime(form), late.strftime(form)
    return f"about {last}" if first == last else f"between {first} and {last}"


def pod_words(pod: Mapping[str, Any]) -> list[str]:
    """Return what is said of pods, of a plan's role or in a job's own fields; empty where nothing is."""
    amounts = {"cpu": pod.get("cpu"), "memory": pod.get("memory"), **pod.get("limits", {}), **pod.get("requests", {})}
    selector = ", ".join(f"{key}={value}" for key, value in sorted(pod.get("node_selector", {}).items()))
    words = [
        f"image {pod['image']}" if pod.get("image") else "",
        *(f"{name} {amount}" for name, amount in amounts.items() if amount),
        f"/dev/shm {pod['shm']}" if pod.get("shm") else "",
        f"on nodes with {selector}" if selector else "",
        f"priority class {pod['priority_class']}" if pod.get("priority_class") else "",
        f"service account {pod['service_account']}" if pod.get("service_account") else "",
        f"in {pod['working_dir']}" if pod.get("working_dir") else "",
    ]
    return [one for one in words if one]


@click.command()
@job_argument
@reading
def attempts(*, job: str, output: Output) -> None:
    """List a job's attempts: when each ran and how it ended."""
    with open_client() as client:
        found = client.attempts(job)
    output.items(
        found,
        ident=lambda one: one.attempt,
        headers=("ATTEMPT", "STARTED", "STARTING", "RAN", "OUTCOME", "FIRST RANK", "MESSAGE"),
        row=_attempt_row,
        empty="No attempts yet: the job is waiting, `muster status JOB` shows why.",
    )


@click.command()
@job_argument
@ATTEMPT
@reading
def ranks(*, job: str, attempt: int | None, output: Output) -> None:
    """List a job's ranks: state, step, resources, exit code."""
    with open_client() as client:
        found = sorted(client.ranks(job, attempt=attempt), key=lambda rank: rank.rank)
    now = datetime.now(timezone.utc)
    output.items(
        found,
        ident=lambda one: one.rank,
        headers=RANK_HEADERS,
        row=lambda rank: rank_row(rank, now=now),
        empty="No ranks yet: they appear when the job starts.",
        is_sparse=True,
    )


@click.command()
@job_argument
@ATTEMPT
@reading
def replicas(*, job: str, attempt: int | None, output: Output) -> None:
    """List a job's replicas: pods of a cluster, or local processes."""
    with open_client() as client:
        found = client.replicas(job, attempt=attempt)
    output.items(
        found,
        ident=lambda one: one.name or f"{one.role}-{one.index}",
        headers=("REPLICA", "NODE", "STATE", "STARTED", "RAN", "EXIT", "REASON"),
        row=_replica_row,
        empty="No replicas yet: they appear when the job starts.",
    )


@click.command()
@job_argument
@click.option("--cluster", is_flag=True, help="What the cluster itself says of its pods now, newest first.")
@ATTEMPT
@reading
def events(*, job: str, cluster: bool, attempt: int | None, output: Output) -> None:
    """List the events of a job, oldest first; with --cluster those that the cluster has of its pods."""
    if attempt and not cluster:
        raise click.UsageError("--attempt is of the cluster's events; add --cluster")
    if cluster:
        return _cluster_events(job, attempt=attempt, output=output)
    with open_client() as client:
        found = client.events(job)
    output.items(
        found,
        ident=lambda one: one.kind,
        headers=("AT", "EVENT", "PHASE", "ATTEMPT", "BY", "MESSAGE"),
        row=_event_row,
        empty="No events are recorded for this job.",
    )


@click.command()
@job_argument
@reading
def checkpoints(*, job: str, output: Output) -> None:
    """List a job's checkpoints, by their steps; `muster submit --from JOB@STEP` begins from one."""
    with open_client() as client:
        found = client.checkpoints(job)
    found.sort(key=lambda one: (one.step is not None, one.step or 0, one.name), reverse=True)
    now = datetime.now(timezone.utc)
    output.items(
        found,
        ident=lambda one: one.name,
        headers=("STEP", "NAME", "SIZE", "WRITTEN", "ATTEMPT", "AS OF"),
        row=lambda one: _checkpoint_row(one, now=now),
        empty="No checkpoints are known: agents look once a minute at the folder of muster.checkpoints().",
    )


def rank_row(rank: Rank, *, now: datetime) -> tuple[object, ...]:
    return (
        rank.rank,
        rank.node,
        rank.replica,
        rank.shown_state,
        rank.step,
        "" if rank.cpu is None else f"{rank.cpu:.1f}",
        size(rank.rss_bytes),
        "" if rank.gpu is None else f"{rank.gpu:.0%}",
        size(rank.gpu_mem_bytes),
        ago(rank.last_line_at, now=now),
        rank.ending,
        rank.nan_words,
    )


def _attempt_row(one: Attempt) -> tuple[object, ...]:
    began = between(one.started_at, one.running_at)
    ran = between(one.running_at, one.ended_at)
    why = one.first_failure.words if one.first_failure else one.message
    return (one.attempt, clock(one.started_at), began, ran, one.shown_outcome, one.first_failing_rank, why)


def _replica_row(one: Replica) -> tuple[object, ...]:
    name, ran = f"{one.role}-{one.index}", between(one.started_at, one.ended_at)
    code = one.ending
    state = f"{one.state} (silent)" if one.is_silent else one.state
    return (name, one.node, state, clock(one.started_at), ran, code, one.reason)


def _checkpoint_row(one: Checkpoint, *, now: datetime) -> tuple[object, ...]:
    written, seen = ago(one.written_at, now=now), ago(one.seen_at, now=now)
    return ("" if one.step is None else one.step, one.name, size(one.size_bytes), written, one.attempt, seen)


def _cluster_events(job: str, *, attempt: int | None, output: Output) -> None:
    with open_client() as client:
        found = client.cluster_events(job, attempt=attempt)
    output.items(
        found.events,
        ident=lambda one: one.reason,
        headers=("AT", "TYPE", "REASON", "OBJECT", "TIMES", "MESSAGE"),
        row=lambda one: (clock(one.at), one.type, one.reason, one.object, one.count, one.message),
        empty=printable(found.message) or "The cluster has no events of its pods.",
    )
    if found.events and found.message:
        note(printable(found.message))


def _event_row(one: Event) -> tuple[object, ...]:
    return (clock(one.at), one.kind, one.phase, one.attempt or "", one.user, one.message)


def between(begin: datetime | None, end: datetime | None) -> str:
    return duration((end - begin).total_seconds()) if begin and end else ""
