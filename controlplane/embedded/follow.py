"""Follows one job through the public API: a live view on stderr, and at the end its result on stdout, as JSON.

A process of its own, so that neither the HTTP client nor its memory stays with the supervisor.
"""

import json
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from muster import Client
from muster.errors import MusterError
from muster.models import Job, Rank

from .view import JobView, RankView, plain, screen

LOOK_SECONDS = 0.5
PLAIN_STEP_SECONDS = 10.0


def main(job_id: str) -> int:
    began = time.monotonic()
    show = _live if sys.stderr.isatty() else _plain
    shown: JobView | None = None
    with Client() as client:
        while True:
            seen = _look(client, job_id=int(job_id), began=began)
            if seen is not None:
                job, view = seen
                show(view, shown)
                shown = view
                if job.is_finished or job.phase == "suspended":
                    return _report(client, job=job, seconds=time.monotonic() - began)
            time.sleep(LOOK_SECONDS)


def _look(client: Client, *, job_id: int, began: float) -> tuple[Job, JobView] | None:
    """None when the server did not answer: it is starting again, and the job goes on meanwhile."""
    try:
        job, ranks, reported = client.job(job_id), client.ranks(job_id), _reported(client, job_id=job_id)
    except MusterError:
        return None
    views = tuple(_rank(rank) for rank in sorted(ranks, key=lambda rank: rank.rank))
    return job, JobView(job.name, job.phase, job.message, time.monotonic() - began, views, reported)


def _rank(rank: Rank) -> RankView:
    ending = f"signal {rank.signal}" if rank.signal else f"code {rank.exit_code}" if rank.exit_code else ""
    return RankView(rank.rank, rank.state, rank.replica, rank.step, rank.cpu, ending)


def _reported(client: Client, *, job_id: int) -> Mapping[tuple[str, int], float]:
    series = client.metrics(job_id)
    return {(one.name, one.rank or 0): one.points[-1].value for one in series if one.points and one.points[-1].value is not None}


def _live(view: JobView, before: JobView | None) -> None:
    """Redrawn in place: up by what was drawn, and each line cleared before it is written."""
    size = shutil.get_terminal_size()
    up = f"\x1b[{len(screen(before, width=size.columns))}F" if before else ""
    lines = "".join(f"\x1b[2K{line}\n" for line in screen(view, width=size.columns))
    sys.stderr.write(f"{up}{lines}\x1b[0J")
    sys.stderr.flush()


_said = [0.0]


def _plain(view: JobView, before: JobView | None) -> None:
    lines = plain(view, before=before)
    if not lines and view.phase == "running" and view.seconds - _said[0] > PLAIN_STEP_SECONDS:
        lines = screen(view, width=200)
    if lines:
        _said[0] = view.seconds
        print("\n".join(lines), file=sys.stderr, flush=True)


def _report(client: Client, *, job: Job, seconds: float) -> int:
    if job.first_failure:
        print(f"first failure: {job.first_failure.explanation}", *job.first_failure.last_lines, sep="\n  | ", file=sys.stderr)
    print(json.dumps(_result(job, seconds=seconds)))
    return 0 if job.phase == "succeeded" else 1


def _result(job: Job, *, seconds: float) -> dict[str, Any]:
    return {
        "job": job.id,
        "phase": job.phase,
        "attempts": job.attempt,
        "replicas": job.nodes,
        "ranks": job.ranks.succeeded,
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
