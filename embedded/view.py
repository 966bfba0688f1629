"""Render a running job for a terminal. Pure: values in, lines out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MARKS = {"waiting": ".", "running": ">", "succeeded": "+", "failed": "x"}


@dataclass(frozen=True)
class RankView:
    rank: int
    state: str
    replica: str = ""
    step: int | None = None
    cpu: float | None = None
    ending: str = ""  # exit code or signal, as text


@dataclass(frozen=True)
class JobView:
    name: str
    phase: str
    message: str
    seconds: float
    ranks: tuple[RankView, ...] = ()
    reported: Mapping[tuple[str, int], float] | None = None  # (name, rank) -> last value


def screen(job: JobView, *, width: int) -> list[str]:
    """Return one line for the job and one for each rank."""
    head = f"{job.name}  {job.phase}  {job.seconds:.0f} s"
    head += f"  {job.message}" if job.message and job.phase not in ("running", "succeeded") else ""
    return [line[: width - 1] for line in [head, *(rank_line(rank, job=job) for rank in job.ranks)]]


def rank_line(rank: RankView, *, job: JobView) -> str:
    parts = [f"  {MARKS.get(rank.state, '?')} rank {rank.rank:<3} {rank.state:<9} {rank.replica:<10}"]
    parts += [f"step {rank.step:<6}"] if rank.step is not None else []
    parts += [f"{name} {value:<8.4g}" for name, value in _values(rank.rank, reported=job.reported or {})]
    parts += [f"cpu {rank.cpu:.1f}"] if rank.cpu is not None and rank.state == "running" else []
    parts += [rank.ending] if rank.ending else []
    return " ".join(parts).rstrip()


def plain(job: JobView, *, before: JobView | None) -> list[str]:
    """Return only what changed, each line complete in itself: for a pipe or a log."""
    states = {rank.rank: rank.state for rank in before.ranks} if before else {}
    lines = (
        [] if before and before.phase == job.phase else [f"{job.phase}: {job.message}" if job.message else job.phase]
    )
    return lines + [rank_line(rank, job=job).strip() for rank in job.ranks if states.get(rank.rank) != rank.state]


def _values(rank: int, *, reported: Mapping[tuple[str, int], float]) -> Iterable[tuple[str, float]]:
    """Return up to three reported values, loss first, since that is of most interest.

    What the agent measures (`system/...`) is on the job's page.
    """
    mine = [(name, value) for (name, of), value in reported.items() if of == rank and not name.startswith("system/")]
    return sorted(mine, key=lambda pair: (pair[0] != "loss", pair[0]))[:3]
