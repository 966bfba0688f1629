"""Following a job: its lines as they come, its phases in between, its exit code at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import click

from muster.calls import LONG_POLL_SECONDS
from muster.client import Client
from muster.commands.session import note
from muster.follow import LogReader
from muster.models import Job, LogLine
from muster.render import Terminal, printable, terminal_of

LOOK_SECONDS = 2.0  # how often the phase is looked at between lines
QUIET_POLL_SECONDS = 2  # before a job runs there is no log, and its phases are what people wait for
INTERRUPTED = 130  # 128 + SIGINT, as shells count it


@dataclass(frozen=True)
class LineWriter:
    has_rank: bool = True
    has_time: bool = False
    terminal: Terminal = field(default_factory=terminal_of)

    def write(self, lines: Iterable[LogLine]) -> None:
        """Straight to the stream, flushed once: `click.echo` flushes every line, too slow for a long log."""
        for line in lines:
            prefix = self._time(line) + self._rank(line)
            sys.stdout.write((self.terminal.dim(prefix) if prefix else "") + line.text + "\n")
        sys.stdout.flush()

    def _rank(self, line: LogLine) -> str:
        if not self.has_rank:
            return ""
        return "[launcher] " if line.is_launcher else f"[rank {line.rank}] "

    def _time(self, line: LogLine) -> str:
        return line.at.astimezone().isoformat(timespec="milliseconds") + " " if self.has_time else ""


def follow(client: Client, *, job: Job, writer: LineWriter, rank: int | None = None, tail: int | None = None) -> Job:
    """Print until the job has ended and its log is complete; the finished job."""
    reader = LogReader(job.id, rank=rank, tail=tail, is_following=True)
    looked_at = time.monotonic()
    _say(job)
    while not reader.is_done:
        wait = LONG_POLL_SECONDS if job.phase == "running" else QUIET_POLL_SECONDS
        page = client.log_page(job, **reader.place(wait_seconds=wait))
        writer.write(page.lines)
        time.sleep(reader.take(page))
        if not page.lines or time.monotonic() - looked_at > LOOK_SECONDS:
            job, looked_at = _look(client, job=job), time.monotonic()
    return _look(client, job=client.wait(job))


def exit_code_of(job: Job) -> int:
    """The job's own: 0, or of the first rank that failed its exit code or 128 + signal, or 1."""
    if job.phase == "succeeded":
        return 0
    failure = job.first_failure
    if job.phase != "failed" or failure is None:
        return 1
    if failure.signal:
        return 128 + failure.signal
    code = failure.exit_code or 1
    return code if 0 < code < 256 else 1


def detached(job: Job) -> None:
    """Ctrl-C leaves the job alone: stopping hours of training must be asked for by name."""
    ways = f"`muster logs -f {job.id}` comes back, `muster cancel {job.id}` ends it"
    note(f"\nmuster: detached; job {job.id} goes on: {ways}")
    click.get_current_context().exit(INTERRUPTED)


def _look(client: Client, *, job: Job) -> Job:
    seen = client.job(job)
    if (seen.phase, seen.message) != (job.phase, job.message):
        _say(seen)
    return seen


def _say(job: Job) -> None:
    terminal = terminal_of(sys.stderr)
    message = printable(job.message or job.reason)
    note(f"{terminal.phase(job.phase)}{terminal.dim(f': {message}' if message else '')}")
