"""Verdicts: a corpus of failing jobs, each with what a careful person says of it (README.md), played on one installation.

First rank, kind and headline are scored apart, for scripts and for what a cluster does; each may be wrong in 5 % of the cases, where a
wrong verdict that calls itself sure counts twice. The time is from the event that proves a verdict to its last change in the API.

Jobs that look like failures and are none (successes.yaml) follow: none of them may fail.

MUSTER_BENCH_CASES=name,name plays only these, MUSTER_BENCH_AT_ONCE that many jobs at a time (2).
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..figures import Figure, Result
from ..rig import rig
from . import score
from .cases import Case, corpus
from .playing import clusters, play
from .score import JUDGED, Played
from .successes import Ended, Success, successes
from .successes import play as play_successes

WRONG_PERCENT = 5.0
SECONDS = 5.0


def run() -> Result:
    played, ended = played_on_an_installation(*chosen(os.environ.get("MUSTER_BENCH_CASES", "")))
    scripts = [one for one in played if not one.case.is_of_cluster]
    of_cluster = [one for one in played if one.case.is_of_cluster]
    for title, half in (("scripts", scripts), ("cluster", of_cluster)):
        _print_table(title, half)
    failed = [one.name for one in ended if not one.is_right]
    figures = [*_figures("scripts", scripts), *_figures("cluster", of_cluster)]
    figures += [Figure("successes_that_failed", len(failed), "jobs", 0)] if ended else []
    notes = {
        "cases": len(played),
        "successes": len(ended),
        "successes_that_failed": failed,
        "wrong": {what: sorted(one.case.name for one in played if what in one.score.wrong) for what in _ALL},
        "late": sorted(one.case.name for one in played if (one.seconds or 0) > SECONDS),
        "kinds": {"scripts": score.by_kind(scripts), "cluster": score.by_kind(of_cluster)},
    }
    return Result("verdicts", figures, notes)


def played_on_an_installation(
    wanted: Sequence[Case], having_to_succeed: Sequence[Success] = ()
) -> tuple[list[Played], list[Ended]]:
    """Scripts first: they are what takes time."""
    at_once = int(os.environ.get("MUSTER_BENCH_AT_ONCE", "2"))
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        scripted = Path(folder, "scripted")
        with rig(Path(folder, "installation"), environ={"MUSTER_CLUSTERS": clusters(scripted)}) as muster:
            ordered = sorted(wanted, key=lambda case: (case.is_of_cluster, case.name))
            played = play(muster, ordered, scripts=scripted, at_once=at_once, on_played=_print)
            return played, play_successes(muster, having_to_succeed, at_once=at_once)


def chosen(names: str) -> tuple[list[Case], list[Success]]:
    """Cases, and jobs that have to succeed: all where nothing is asked for. Raises ValueError for an unknown name."""
    known = {case.name: case for case in corpus()}
    right = {one.name: one for one in successes()}
    wanted = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip())) or [*known, *right]
    if unknown := [name for name in wanted if name not in known and name not in right]:
        raise ValueError(f"MUSTER_BENCH_CASES: no case {', '.join(unknown)}; bench/verdicts holds them")
    return [known[name] for name in wanted if name in known], [right[name] for name in wanted if name in right]


_ALL = (*JUDGED, "certainty", "traceback")


def _figures(title: str, half: list[Played]) -> list[Figure]:
    if not half:
        return []
    wrong = [Figure(f"{title}_{what}_wrong", score.wrong_percent(half, what), "%", WRONG_PERCENT) for what in JUDGED]
    return [*wrong, Figure(f"{title}_slowest", score.slowest(half), "s", SECONDS)]


def _print(one: Played) -> None:
    seconds = "no verdict" if one.seconds is None else f"{one.seconds:4.1f} s"
    wrong = ", ".join(one.score.wrong)
    print(f"{one.case.name:44} {seconds:10} {f'wrong: {wrong}' if wrong else 'right'}", flush=True)
    if wrong or one.trouble:
        print("\n".join(score.report(one)), flush=True)


def _print_table(title: str, half: list[Played]) -> None:
    print(f"{title:16} {'cases':>6} {'rank':>6} {'kind':>6} {'headline':>9} {'slowest':>8}")
    for kind, row in score.by_kind(half).items():
        counts = f"{row['cases']:6} {row['rank']:6} {row['kind']:6} {row['headline']:9}"
        print(f"  {kind:14} {counts} {row['slowest_seconds']:7} s", flush=True)
