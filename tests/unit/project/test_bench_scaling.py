"""docs/scaling.md holds what the benchmarks print, and the processes that it asks for follow from that by arithmetic."""

import ast
import json
import re
from dataclasses import replace

import pytest

from bench import quiet, scaling
from bench.__main__ import NAMES
from bench.figures import Figure, Result
from bench.procs import PARTS, short
from bench.rows import RowCounts
from bench.scaling import ROOT, USES, BadLoad, Cost, Load, need, read_load, typical

LOAD = Load(
    gpus=16, gpus_per_node=8, running_jobs=3, lines_per_rank_second=100, points_per_rank_second=0, jobs_per_hour=0,
    replicas_per_job=0, quiet_pages=0, busy_pages=0, pages_per_minute=0,
)  # fmt: skip
FREE = {(use.bench, use.figure): Cost(0.0, "CPU ms", {}) for use in USES} | {
    ("pages", "point_1024_stored"): Cost(30.0, "bytes", {}),
    ("submit", "memory_database_per_job"): Cost(8.0, "KB", {}),
    ("ingest", "stored_bytes_per_line"): Cost(20.0, "bytes", {}),
}


def priced(**parts: float) -> dict[tuple[str, str], Cost]:
    return FREE | {("quiet", "agent_cpu"): Cost(sum(parts.values()), "CPU ms/min", parts)}


def test_the_cost_of_a_thing_times_their_number_is_the_cores_it_keeps_busy():
    found = need(LOAD, priced(web=6000.0, postgres=600.0, redis=60.0, watcher=60.0, agents=9000.0))
    assert found.cores == pytest.approx({"web": 0.2, "tasks": 0.0, "postgres": 0.02, "others": 0.004})
    [agents] = [row for row in found.rows if row.what == "agents"]
    assert (agents.count, agents.cores["web"]) == (2, pytest.approx(0.2))


def test_a_process_is_planned_to_be_busy_half_of_the_time():
    load = replace(LOAD, gpus=1000)
    found = need(load, priced(web=1000.0, postgres=1000.0))  # 125 nodes: 2.08 cores
    assert (found.web, found.tasks, found.postgres) == (5, 2, 5)


def test_one_machine_needs_one_process_of_each():
    found = need(replace(LOAD, gpus=8), FREE)
    assert (found.web, found.tasks) == (1, 1)


def test_a_part_that_was_measured_below_zero_counts_as_nothing():
    assert need(LOAD, priced(web=-500.0)).cores["web"] == 0.0


def test_what_is_stored_in_a_day():
    found = need(replace(LOAD, points_per_rank_second=2, jobs_per_hour=3600), FREE)
    assert found.log_bytes == 86_400 * 16 * 100 * 20
    assert found.database_bytes == 86_400 * (16 * 2 * 30 + 8000)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [("", "gpus", 10_000), ("gpus=400", "running_jobs", 8), ("gpus=400 running_jobs=2.5", "running_jobs", 2.5)],
)
def test_a_load_of_ones_own(text, name, value):
    assert getattr(read_load(text), name) == value


@pytest.mark.parametrize("text", ["gpu=4", "gpus", "gpus=many", "gpus=-1", "nodes=4"])
def test_a_wrong_load_is_refused_by_name(text):
    with pytest.raises(BadLoad, match="gpus_per_node"):
        read_load(text)


def test_a_node_without_gpus_is_refused():
    with pytest.raises(BadLoad, match="gpus_per_node=0"):
        read_load("gpus_per_node=0")


def test_figures_of_this_machine_are_read_as_bin_bench_writes_them(tmp_path, monkeypatch):
    figure = Figure("job_cpu", 1.5, "CPU ms/min", parts={"web": 1.5})
    (tmp_path / "quiet.json").write_text(Result("quiet", [figure, Figure("of no interest", 1.0, "")]).to_json())
    monkeypatch.setattr(scaling, "MEASURED", tmp_path)
    assert scaling.measured() == {("quiet", "job_cpu"): Cost(1.5, "CPU ms/min", {"web": 1.5})}


def test_a_figure_without_a_bound_misses_none():
    assert Figure("cost", 5.0, "CPU ms").met is None
    assert json.loads(Result("x", [Figure("a", 1.0, "", 2.0), Figure("cost", 5.0, "")]).to_json())["met"] is True
    assert json.loads(Result("x", [Figure("a", 3.0, "", 2.0), Figure("cost", 5.0, "")]).to_json())["met"] is False


def test_differences_of_the_shapes_are_the_costs_of_a_job_an_agent_and_a_rank():
    base, job, agent, rank = 10.0, 7.0, 5.0, 3.0
    seen = {
        shape: {"web": base + jobs * (job + nodes * (agent + nproc * rank)) if jobs else 1.0}
        for shape, (jobs, nodes, nproc) in quiet.SHAPES.items()
    }
    found = quiet.unit_costs(seen, number=quiet.NUMBER)
    expected = {"base": base, "job": job, "agent": agent, "rank": rank}
    assert {thing: spent["web"] for thing, spent in found.items()} == pytest.approx(expected)


def test_rows_since_an_earlier_look():
    assert RowCounts(5, 9, 4, 800).since(RowCounts(2, 3, 1, 100)) == RowCounts(3, 6, 3, 700)


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("python /data/local/agent/agent-8b8db839f921009c.pyz --state /data/jobs/x", "agents"),
        ("python agent.pyz --state x", "agents"),
        ("python -m uvicorn controlplane.asgi:application", "web"),
        ("python -m celery --quiet -A controlplane.celery worker --pool threads", "tasks"),
        ("python quiet.py", None),
    ],
)
def test_processes_are_told_apart_by_their_commands(command, part):
    assert PARTS.get(short(command)) == part


# The document

PAGE = scaling.PAGE.read_text()
COSTS = scaling.documented()
# | what | cost | `bench` `figure` | where |
WRITTEN = re.findall(r"^\| [^|]+ \| [\d.,]+ [^|]+ \| `(\w+)` `([^`]+)` \|", PAGE, re.M)


def test_every_cost_in_the_document_is_the_figure_of_a_benchmark():
    assert {bench for bench, _ in WRITTEN} <= set(NAMES)
    assert sorted(WRITTEN) == sorted(COSTS)


def test_every_benchmark_prints_its_figures_by_their_names():
    printed = {bench: texts(bench) for bench, _ in COSTS}
    missing = [
        (bench, figure)
        for bench, figure in sorted(COSTS)
        if not any(re.fullmatch(pattern, figure) for pattern in printed[bench])
    ]
    assert missing == [], "bench/BENCH.py prints no such figure"


def texts(bench: str) -> list[str]:
    """The literals of a benchmark as patterns; what is filled in may be anything."""
    tree = ast.parse((ROOT / f"bench/{bench}.py").read_text())
    filled = [
        "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in node.values)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr) and any(is_word(part) for part in node.values)
    ]
    plain = [
        re.escape(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return filled + plain


def is_word(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and re.search(r"\w{3}", str(part.value)) is not None


def test_the_numbers_of_the_document_are_the_figures_and_what_the_arithmetic_gives():
    assert scaling.with_tables(PAGE, COSTS) == PAGE, "run `python -m bench.scaling save`"
    assert PAGE.count("<!-- end -->") == 2


def test_every_term_of_the_arithmetic_is_documented():
    assert {(use.bench, use.figure) for use in USES} <= set(COSTS)
    for use in USES:
        assert COSTS[use.bench, use.figure].parts, use.figure
    assert need(typical(10_000), COSTS).web >= 2
