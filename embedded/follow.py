"""Follow one job through the public API: a live view on stderr, and at the end its result on stdout, as JSON.

A process of its own, so that neither the HTTP client nor its memory stays with the supervisor.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from muster import Client
from muster.errors import MusterError
from muster.jobs.models import Job, Rank

from .view import JobView, RankView, plain, screen

LOOK_SECONDS = 0.5
PLAIN_STEP_SECONDS = 10.0


class Live:
    """Redraw in place: move up by the lines drawn before, and clear each line before writing it."""

    _drawn = 0

    def show(self, view: JobView) -> None:
        lines = screen(view, width=os.get_terminal_size(sys.stderr.fileno()).columns or 80)
        up = f"\x1b[{self._drawn}F" if self._drawn else ""
        sys.stderr.write(up + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[0J")
        sys.stderr.flush()
        self._drawn = len(lines)


class Lines:
    """For a pipe or a log: print what changed, and periodically how far training is."""

    _before: JobView | None = None
    _said_at = 0.0

    def show(self, view: JobView) -> None:
        lines = plain(view, before=self._before)
        if not lines and view.phase == "running" and view.seconds - self._said_at > PLAIN_STEP_SECONDS:
            lines = screen(view, width=200)
        if lines:
            self._said_at = view.seconds
            print("\n".join(lines), file=sys.stderr, flush=True)
        self._before = view


def main(job_id: str) -> int:
    began = time.monotonic()
    terminal = Live() if sys.stderr.isatty() else Lines()
    with Client() as client:
        while True:
            seen = _look(client, job_id=int(job_id), began=began)
            if seen is not None:
                job, view = seen
                terminal.show(view)
                if _is_over(job):
                    return _report(client, job=job, seconds=time.monotonic() - began)
            time.sleep(LOOK_SECONDS)


def _is_over(job: Job) -> bool:
    """Return whether to stop following: also for a suspended job, unless it was just resumed and awaits a visit."""
    return job.is_finished or (job.phase == "suspended" and bool(job.raw.get("suspended", True)))


def _look(client: Client, *, job_id: int, began: float) -> tuple[Job, JobView] | None:
    """Return the job and its view; None when the server did not answer: it is restarting, and the job continues."""
    try:
        job, ranks, reported = client.job(job_id), client.ranks(job_id), _reported(client, job_id=job_id)
    except MusterError:
        return None
    views = tuple(_rank(rank) for rank in sorted(ranks, key=lambda rank: rank.rank))
    return job, JobView(job.name, job.phase, job.message, time.monotonic() - began, views, reported)


def _rank(rank: Rank) -> RankView:
    return RankView(rank.rank, rank.state, rank.replica, rank.step, rank.cpu, rank.ending)


def _reported(client: Client, *, job_id: int) -> Mapping[tuple[str, int], float]:
    series = client.metrics(job_id)
    return {
        (one.name, one.rank or 0): one.points[-1].value
        for one in series
        if one.points and one.points[-1].value is not None
    }


def _report(client: Client, *, job: Job, seconds: float) -> int:
    if job.first_failure:
        print(
            f"first failure: {job.first_failure.words}",
            *job.first_failure.last_lines,
            sep="\n  | ",
            file=sys.stderr,
        )
    print(json.dumps(_result(job, replicas=len(client.replicas(job.id)), seconds=seconds)))
    return 0 if job.phase == "succeeded" else 1


def _result(job: Job, *, replicas: int, seconds: float) -> dict[str, Any]:
    return {
        "job": job.id,
        "phase": job.phase,
        "attempts": job.attempt,
        "replicas": replicas,
        "ranks": job.ranks.succeeded,
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
