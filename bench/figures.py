"""The shape of a benchmark's answer: a figure, its reference from the same run, the bound, and whether it is met.

A cost of one thing (a job, a rank, a line) is a figure without a bound; `bench/scaling.py` multiplies such costs.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Figure:
    """`ratio` is value over reference where there is one. `met`: the bound holds, for `bound_on` ratio or value; None
    without a bound. `parts`: the value's share of each kind of process (`procs.PARTS`), in the same unit.
    """

    name: str
    value: float
    unit: str
    bound: float | None = None
    reference: float | None = None
    bound_on: str = "value"
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return None if not self.reference else self.value / self.reference

    @property
    def met(self) -> bool | None:
        if self.bound is None:
            return None
        judged = self.ratio if self.bound_on == "ratio" else self.value
        return judged is not None and judged <= self.bound

    def to_dict(self) -> dict[str, object]:
        rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(self).items()}
        rounded["parts"] = {name: round(value, 4) for name, value in self.parts.items()}
        ratio = None if self.ratio is None else round(self.ratio, 4)
        return {**rounded, "ratio": ratio, "met": self.met}


@dataclass(frozen=True)
class Result:
    """One figure, or several under one name; then `met` only if all are."""

    name: str
    figures: list[Figure]
    notes: dict[str, object] = field(default_factory=dict)

    def to_json(self) -> str:
        if len(self.figures) == 1:
            return json.dumps({**self.figures[0].to_dict(), "name": self.name, "notes": self.notes})
        met = all(figure.met is not False for figure in self.figures)
        return json.dumps(
            {"name": self.name, "met": met, "figures": [one.to_dict() for one in self.figures], "notes": self.notes}
        )
