"""Follow a job: its lines as they come, its phases in between, its exit code at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

import click

from muster.client import Client
from muster.commands.interruptible import interruptible
from muster.commands.output import as_json, note
from muster.jobs.models import Job, LogLine
from muster.render import Terminal, inert, printable, terminal_of

INTERRUPTED = 130  # 128 + SIGINT, the shells' convention: the reader left, the job goes on
CANCELLED = 120
SUSPENDED = 121
ENDED_BADLY = 1  # failed, without a rank whose exit code is known


@dataclass(frozen=True)
class LineWriter:
    has_rank: bool = True
    has_time: bool = False
    is_raw: bool = False
    is_json: bool = False
    replica: str | None = None  # the only one whose lines were asked for
    terminal: Terminal = field(default_factory=terminal_of)

    def write(self, lines: Iterable[LogLine]) -> None:
        """Write directly to the stream, flushed once: `click.echo` flushes every line, too slow for a long log."""
        for line in lines:
            if self.replica and line.replica != self.replica and not line.is_gap:
                raise click.ClickException(
                    "this server is older than --replica and sends every line; use --rank, or update it"
                )
            sys.stdout.write(self._json(line) if self.is_json else self._plain(line))
        sys.stdout.flush()

    def _plain(self, line: LogLine) -> str:
        prefix = self._time(line) + self._rank(line)
        text = line.text if self.is_raw else inert(line.text)
        return (self.terminal.dim(prefix) if prefix else "") + text + "\n"

    def _json(self, line: LogLine) -> str:
        return as_json(line.raw, indent=None) + "\n"

    def _rank(self, line: LogLine) -> str:
        if not self.has_rank:
            return ""
        return f"[{inert(line.replica) or 'launcher'}] " if line.is_launcher else f"[rank {line.rank}] "

    def _time(self, line: LogLine) -> str:
        return line.at.astimezone().isoformat(timespec="milliseconds") + " " if self.has_time else ""


def follow(
    client: Client,
    *,
    job: Job,
    writer: LineWriter,
    rank: int | None = None,
    replica: str | None = None,
    tail: int | None = None,
    cursor: str | None = None,
) -> Job:
    """Print until the job has ended (or is suspended) and its log is complete; return the job's last known state."""
    shown: tuple[str, str] | None = None
    for seen in interruptible(client.follow_pages(job, rank=rank, replica=replica, tail=tail, cursor=cursor)):
        if not isinstance(seen, Job):
            writer.write(seen.lines)
            continue
        job = seen
        if shown != (shown := (seen.phase, seen.message or seen.reason)):
            _say(seen)
    return job


def exit_code_of(job: Job) -> int:
    """Return the job's exit code: 0, or the first failed rank's exit code or 128 + signal, or 1; see docs/cli.md."""
    if job.phase == "succeeded":
        return 0
    if job.phase != "failed":
        return {"cancelled": CANCELLED, "suspended": SUSPENDED}.get(job.phase, ENDED_BADLY)
    failure = job.first_failure
    if failure is None:
        return ENDED_BADLY
    if failure.signal:
        return 128 + failure.signal
    code = failure.exit_code or ENDED_BADLY
    return code if 0 < code < 256 else ENDED_BADLY


def detached(job: Job) -> NoReturn:
    """Exit on Ctrl-C without ending the job: stopping hours of training must be requested explicitly."""
    ways = f"`muster logs -f {job.id}` follows it again, `muster cancel {job.id}` cancels it"
    note(f"\nmuster: detached; job {job.id} keeps running: {ways}")
    click.get_current_context().exit(INTERRUPTED)


def leave(job: Job) -> None:
    """End this command as the job did."""
    if job.phase == "suspended":
        note(f"muster: job {job.id} is suspended: run `muster resume {job.id}`, then `muster logs -f {job.id}`")
    click.get_current_context().exit(exit_code_of(job))


def _say(job: Job) -> None:
    terminal = terminal_of(sys.stderr)
    message = printable(job.message or job.reason)
    note(f"{terminal.phase(job.phase)}{terminal.dim(f': {message}' if message else '')}")
