"""What a verdict got right, by the label of its case; and the sums that the figures are made of. Pure.

A verdict is the API's `first_failure`, read tolerantly: what it lacks is wrong.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .cases import Case, Label

JUDGED = ("rank", "kind", "headline")  # each has a bound of its own
WEIGHT_OF_A_WRONG_SURE = 2


@dataclass(frozen=True)
class Score:
    """`certainty` and `traceback` are None where the label asks for nothing."""

    rank: bool
    kind: bool
    headline: bool
    certainty: bool | None
    traceback: bool | None
    is_sure: bool

    @property
    def wrong(self) -> list[str]:
        return [name for name in (*JUDGED, "certainty", "traceback") if getattr(self, name) is False]


@dataclass(frozen=True)
class Played:
    """One case that was run. `seconds` from the event that proves the verdict to its last change in the API; None: there is no verdict."""

    case: Case
    verdict: Mapping[str, Any] | None
    seconds: float | None
    excerpt: tuple[str, ...] = ()
    trouble: str = ""  # why there is nothing to judge: the job did not end

    @property
    def score(self) -> Score:
        return score(self.case.label, self.verdict or {})


def score(label: Label, verdict: Mapping[str, Any]) -> Score:
    certainty = str(verdict.get("certainty") or "")
    headline = str(verdict.get("headline") or "")
    lines = "\n".join(map(str, verdict.get("traceback") or []))
    return Score(
        rank=bool(verdict) and _is_rank_right(label, verdict),
        kind=verdict.get("kind") in label.kinds,
        headline=_is_headline_right(label, headline),
        certainty=None if label.certainty is None else certainty == label.certainty,
        traceback=None if not label.traceback else all(text in lines for text in label.traceback),
        is_sure=certainty == "sure",
    )


def wrong_percent(played: Sequence[Played], what: str) -> float:
    """Of all cases; a wrong verdict that calls itself sure counts twice."""
    wrong = sum(WEIGHT_OF_A_WRONG_SURE if one.score.is_sure else 1 for one in played if not getattr(one.score, what))
    return 100 * wrong / len(played) if played else 0.0


def slowest(played: Iterable[Played]) -> float:
    """Seconds. A case without a verdict has none; it is wrong anyway."""
    return max((one.seconds for one in played if one.seconds is not None), default=0.0)


def by_kind(played: Iterable[Played]) -> dict[str, dict[str, Any]]:
    """For each kind of the labels: cases, how many are right in what, the slowest verdict."""
    found: dict[str, list[Played]] = {}
    for one in played:
        found.setdefault(one.case.label.kinds[0], []).append(one)
    return {
        kind: {
            "cases": len(ones),
            **{what: _count(ones, lambda one, what=what: getattr(one.score, what) is True) for what in JUDGED},
            "slowest_seconds": round(slowest(ones), 1),
        }
        for kind, ones in sorted(found.items())
    }


def report(one: Played) -> list[str]:
    """What was expected, what came, and the end of the log, for a person who looks into it."""
    label, verdict = one.case.label, one.verdict or {}
    who = (
        f"rank {'/'.join(map(str, label.ranks))}"
        if label.ranks
        else f"replica {'/'.join(map(str, label.replicas)) or 'any'}"
    )
    forbidden = f" and not {label.without}" if label.without else ""
    got = {key: verdict.get(key) for key in ("rank", "replica", "kind", "certainty", "headline", "explanation")}
    return [
        f"{one.case.name}: wrong in {', '.join(one.score.wrong)}{': ' + one.trouble if one.trouble else ''}",
        f"    expected {who}, {'/'.join(label.kinds)}, {label.certainty or 'any certainty'}, headline with {label.headline or label.matches!r}{forbidden}",
        f"    got      {got if verdict else 'no verdict'}",
        *(f"    | {line[:200]}" for line in one.excerpt),
    ]


def _is_rank_right(label: Label, verdict: Mapping[str, Any]) -> bool:
    if label.ranks:
        return verdict.get("rank") in label.ranks
    return verdict.get("rank") is None and (not label.replicas or (verdict.get("replica") or None) in label.replicas)


def _is_headline_right(label: Label, headline: str) -> bool:
    return (
        bool(headline)
        and label.headline in headline
        and re.search(label.matches, headline) is not None
        and not any(re.search(pattern, headline) for pattern in label.without)
    )


def _count(ones: Iterable[Played], what: Callable[[Played], bool]) -> int:
    return sum(map(what, ones))
