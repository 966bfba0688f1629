"""How many processes an installation of a given size needs: the measured cost of each thing times how many there are.

`bin/bench scaling` prints the arithmetic as tables, with figures of this machine (artifacts/bench, written by `bin/bench`) where it
has some, else with those of docs/scaling.md (costs.json). `MUSTER_BENCH_LOAD="gpus=4096 running_jobs=80"` computes another load.
`python -m bench.scaling save` puts this machine's figures into costs.json and docs/scaling.md, with all that follows from them.
"""

import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from .figures import Figure, Result

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTED, MEASURED = Path(__file__).with_name("costs.json"), ROOT / "artifacts/bench"
PAGE = ROOT / "docs/scaling.md"
SIZES = (8, 800, 10_000)  # GPUs
DAY = 86_400
BUSY = 0.5  # the share of its core that a process is to be busy with on average, so that a burst finds room
# A cost's unit to CPU seconds in a second: of one thing that is there all the time, or of one that happens each second.
UNITS = {"CPU ms/min": 1e-3 / 60, "CPU ms": 1e-3, "CPU µs": 1e-6}
COLUMNS = ("web", "tasks", "postgres", "others")
ON_NODES = "agents"  # beside the ranks: no process that somebody has to add


class BadLoad(ValueError):
    """MUSTER_BENCH_LOAD cannot be read; the message says what it may hold."""


@dataclass(frozen=True)
class Load:
    """What an installation has to do. A rank is one GPU's process."""

    gpus: float
    gpus_per_node: float
    running_jobs: float
    lines_per_rank_second: float
    points_per_rank_second: float
    jobs_per_hour: float
    replicas_per_job: float
    quiet_pages: float  # open, of jobs that report nothing new
    busy_pages: float  # open, of jobs of 1,024 ranks that do
    pages_per_minute: float  # opened; half of them jobs of 1,024 ranks, half lists

    @property
    def nodes(self) -> float:
        return math.ceil(self.gpus / self.gpus_per_node)


@dataclass(frozen=True)
class Use:
    """`count`: how many there are, or happen in a second, of what `bench` prints the cost of as `figure`."""

    what: str
    count: Callable[[Load], float]
    bench: str
    figure: str


USES = (
    Use("an installation in which anything runs", lambda load: 1, "quiet", "base_cpu"),
    Use("running jobs", lambda load: load.running_jobs, "quiet", "job_cpu"),
    Use("agents", lambda load: load.nodes, "quiet", "agent_cpu"),
    Use("ranks", lambda load: load.gpus, "quiet", "rank_cpu"),
    Use("lines of logs/s", lambda load: load.gpus * load.lines_per_rank_second, "ingest", "cpu_per_line"),
    Use("points of series/s", lambda load: load.gpus * load.points_per_rank_second, "pages", "point_1024_cpu"),
    Use("jobs/s, from submission to end", lambda load: load.jobs_per_hour / 3600, "submit", "memory_cpu_per_job"),
    Use("replicas started/s", lambda load: _replicas(load), "launch", "CPU per pod, shipped limits"),
    Use("the same, in databases", lambda load: _replicas(load), "launch", "databases' CPU per pod, shipped limits"),
    Use("quiet pages open", lambda load: load.quiet_pages, "pages", "quiet_page_cpu"),
    Use("ranks of busy pages/s", lambda load: load.busy_pages / 2.5, "pages", "ranks_update_1024_cpu"),
    Use("charts of busy pages/s", lambda load: load.busy_pages / 5, "pages", "charts_1024_cpu"),
    Use("pages of jobs opened/s", lambda load: load.pages_per_minute / 120, "pages", "job_page_1024_cpu"),
    Use("lists of jobs opened/s", lambda load: load.pages_per_minute / 120, "list", "page_first_cpu"),
)


@dataclass(frozen=True)
class Cost:
    """`note`: where it comes from, empty if a whole run of its benchmark on an idle machine printed it."""

    value: float
    unit: str
    parts: Mapping[str, float]
    note: str = ""


Costs = Mapping[tuple[str, str], Cost]  # by benchmark and figure


@dataclass(frozen=True)
class CostRow:
    what: str
    count: float
    cost: Cost
    cores: Mapping[str, float]  # by COLUMNS


@dataclass(frozen=True)
class Need:
    """`cores` are busy on average, by COLUMNS. Bytes are those of one day."""

    rows: list[CostRow]
    cores: Mapping[str, float]
    web: int
    tasks: int
    postgres: int
    log_bytes: float
    database_bytes: float


def typical(gpus: float) -> Load:
    """The assumptions of docs/scaling.md: everything grows with the number of GPUs."""
    return Load(
        gpus=gpus, gpus_per_node=8, running_jobs=math.ceil(gpus / 50), lines_per_rank_second=1, points_per_rank_second=1,
        jobs_per_hour=math.ceil(gpus * 0.06), replicas_per_job=6, quiet_pages=math.ceil(gpus / 100),
        busy_pages=math.ceil(gpus / 500), pages_per_minute=math.ceil(gpus * 0.006),
    )  # fmt: skip


def need(load: Load, costs: Costs) -> Need:
    rows = [_row(use, load, costs[use.bench, use.figure]) for use in USES]
    cores = {column: sum(row.cores[column] for row in rows) for column in COLUMNS}
    least = 1 if load.nodes == 1 else 2  # one of each may be away
    points = load.gpus * load.points_per_rank_second * costs["pages", "point_1024_stored"].value
    jobs = load.jobs_per_hour / 3600 * costs["submit", "memory_database_per_job"].value * 1000
    return Need(
        rows=rows,
        cores=cores,
        web=max(least, math.ceil(cores["web"] / BUSY)),
        tasks=max(least, math.ceil(cores["tasks"] / BUSY)),
        postgres=math.ceil(cores["postgres"] / BUSY),
        log_bytes=DAY * load.gpus * load.lines_per_rank_second * costs["ingest", "stored_bytes_per_line"].value,
        database_bytes=DAY * (points + jobs),
    )


def _row(use: Use, load: Load, cost: Cost) -> CostRow:
    """A part below zero is the noise of a difference, and counts as nothing."""
    count, per_second = use.count(load), UNITS[cost.unit]
    cores = dict.fromkeys(COLUMNS, 0.0)
    for part, value in cost.parts.items():
        if part != ON_NODES:
            cores[part if part in cores else "others"] += max(0.0, value) * per_second * count
    return CostRow(use.what, count, cost, cores)


def _replicas(load: Load) -> float:
    return load.jobs_per_hour * load.replicas_per_job / 3600


def documented() -> dict[tuple[str, str], Cost]:
    return _costs(json.loads(DOCUMENTED.read_text()))


def measured() -> dict[tuple[str, str], Cost]:
    """What `bin/bench` found on this machine, of what is documented."""
    found: dict[str, dict[str, dict[str, object]]] = {}
    for file in sorted(MEASURED.glob("*.json")):
        result = json.loads(file.read_text())
        figures = result.get("figures") or [result]
        found[result["name"]] = {one["name"]: one for one in figures}
    return {place: cost for place, cost in _costs(found).items() if place in documented()}


def _costs(found: Mapping[str, Mapping[str, Mapping[str, object]]]) -> dict[tuple[str, str], Cost]:
    names = {one.name for one in fields(Cost)}
    return {
        (bench, figure): Cost(**{"parts": {}, **{name: value for name, value in one.items() if name in names}})
        for bench, figures in found.items()
        for figure, one in figures.items()
    }


def read_load(text: str) -> Load:
    """`gpus=4096 running_jobs=80`: what is not named is as `typical` has it. Raises BadLoad."""
    names = [one.name for one in fields(Load)]
    given: dict[str, float] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        if name not in names or not re.fullmatch(r"\d+(\.\d+)?", value):
            raise BadLoad(f"MUSTER_BENCH_LOAD: {word!r} is not NAME=NUMBER with a name of {', '.join(names)}")
        given[name] = float(value)
    if given.get("gpus_per_node") == 0:
        raise BadLoad("MUSTER_BENCH_LOAD: gpus_per_node=0; a node has one GPU at least")
    return replace(typical(given.get("gpus", SIZES[-1])), **given)


def sizes_table(costs: Costs, loads: list[Load]) -> str:
    lines = [
        "| size | cores busy: web | tasks | Postgres | others | so: web | tasks | cores of Postgres | logs | database |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for load in loads:
        found = need(load, costs)
        busy = " | ".join(f"{found.cores[column]:.2f}" for column in COLUMNS)
        lines.append(
            f"| {load.nodes:,.0f} {'node' if load.nodes == 1 else 'nodes'}, {load.gpus:,.0f} GPUs | {busy} | {found.web} | {found.tasks} | {found.postgres} "
            f"| {found.log_bytes / 1e9:.1f} GB/day | {found.database_bytes / 1e9:.1f} GB/day |"
        )
    return "\n".join(lines)


def arithmetic_table(costs: Costs, load: Load) -> str:
    found = need(load, costs)
    lines = [
        "| what | how many | each | cores: web | tasks | Postgres | others |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found.rows:
        cores = " | ".join(f"{row.cores[column]:.3f}" for column in COLUMNS)
        mark = " *" if row.cost.note else ""
        lines.append(
            f"| {row.what} | {_rounded(row.count)} | {_rounded(row.cost.value)} {row.cost.unit}{mark} | {cores} |"
        )
    total = " | ".join(f"{found.cores[column]:.3f}" for column in COLUMNS)
    return "\n".join([*lines, f"| all | | | {total} |"])


def _cell(cost: Cost) -> str:
    return f"{_rounded(cost.value)} {cost.unit}" + (f" ({cost.note})" if cost.note else "")


def _rounded(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"


def run() -> Result:
    try:
        load = read_load(os.environ.get("MUSTER_BENCH_LOAD", ""))
    except BadLoad as error:
        sys.exit(str(error))
    here = measured()
    costs = {**documented(), **here}
    missing = [f"{use.bench}: {use.figure}" for use in USES if (use.bench, use.figure) not in here]
    loads = [load] if os.environ.get("MUSTER_BENCH_LOAD") else [typical(gpus) for gpus in SIZES]
    print(arithmetic_table(costs, load), sizes_table(costs, loads), sep="\n\n", flush=True)
    found = need(load, costs)
    figures = [Figure(f"{column}_cores", found.cores[column], "cores") for column in COLUMNS]
    counts = {"web": found.web, "tasks": found.tasks, "postgres": found.postgres}
    figures += [Figure(f"{name}_wanted", float(count), "") for name, count in counts.items()]
    return Result("scaling", figures, {"load": vars(load), "documented_and_not_measured_here": missing})


def save() -> None:
    """Put what was measured here into costs.json, and the tables into the document between their marks."""
    kept = json.loads(DOCUMENTED.read_text())
    for (bench, figure), cost in measured().items():
        parts = {name: float(f"{value:.3g}") for name, value in cost.parts.items()}
        kept[bench][figure] = {
            "value": float(f"{cost.value:.3g}"),
            "unit": cost.unit,
            **({"parts": parts} if parts else {}),
        }
    DOCUMENTED.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(with_tables(PAGE.read_text(), documented()))


def with_tables(page: str, costs: Costs) -> str:
    """The document with these costs: those in the rows that name their benchmark and figure, and the tables computed from them."""
    for (bench, figure), cost in costs.items():
        row = rf"^(\| [^|\n]+ \| )[^|\n]+( \| `{bench}` `{re.escape(figure)}` \|)"
        page = re.sub(row, lambda found, cost=cost: found[1] + _cell(cost) + found[2], page, flags=re.M)
    tables = {
        "arithmetic": arithmetic_table(costs, typical(SIZES[-1])),
        "sizes": sizes_table(costs, [typical(gpus) for gpus in SIZES]),
    }
    for name, table in tables.items():
        place = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        page = re.sub(place, lambda found, table=table: f"{found[1]}{table}\n{found[2]}", page, flags=re.S)
    return page


if __name__ == "__main__":
    if sys.argv[1:] != ["save"]:
        sys.exit("usage: python -m bench.scaling save (bin/bench scaling only prints)")
    save()
