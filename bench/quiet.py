"""What jobs cost that run and print nothing: CPU of each process, visits and written rows, per job, agent and rank.

Five times the same minute: without a job; with a job of one rank; with 16 of these; with one job of 16 replicas; with one replica
of 16 ranks. Differences of the last four are the cost of a job, of an agent (one in each replica) and of a rank; what remains of the
second is spent as soon as anything runs. All is CPU time and counts: the machine may do other things meanwhile, though less precisely.
"""

import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from .figures import Figure, Result
from .procs import Meter, descendants, is_agent, pss_bytes
from .rig import Rig, rig
from .rows import FLUSH_SECONDS, rows

NUMBER = 16
SETTLE_SECONDS, SECONDS = 20.0, 60.0
PATIENCE_SECONDS = 300.0
SHAPES = {
    "nothing": (0, 0, 0),
    "one": (1, 1, 1),
    "jobs": (NUMBER, 1, 1),
    "agents": (1, NUMBER, 1),
    "ranks": (1, 1, NUMBER),
}  # jobs, nodes, ranks of each
COUNTS = ("visits", "written")
Spent = dict[str, float]  # in a minute: CPU in ms by kind of process, and COUNTS


def run() -> Result:
    seen: dict[str, Spent] = {}
    memory = 0.0
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, rig(Path(folder) / "installation") as muster:
        muster.manage("queue", "default", "--team", "demo", "--slots", "20000")
        for shape, (jobs, nodes, nproc) in SHAPES.items():
            started = [_start(muster, nodes=nodes, nproc=nproc) for _ in range(jobs)]
            for job in started:
                _await_ranks(muster, job, nodes * nproc)
            time.sleep(max(SETTLE_SECONDS, FLUSH_SECONDS))
            seen[shape] = _minute(muster)
            memory = _agents_memory(muster) if shape == "agents" else memory
            print(f"{shape}: {seen[shape]}", flush=True)
            for job in started:
                muster.client.cancel(job)
            for job in started:
                muster.client.wait(job)
    figures = [one for thing, spent in unit_costs(seen, number=NUMBER).items() for one in _figures(thing, spent)]
    figures.append(Figure("agent_memory", memory, "MB PSS"))
    return Result("quiet", figures, {"number": NUMBER, "seconds": SECONDS, "seen_per_minute": seen})


def unit_costs(seen: Mapping[str, Spent], *, number: int) -> dict[str, Spent]:
    """What a job, an agent and a rank cost, and what remains ("base"), from what was spent with each of SHAPES.

    "one" is one of all three, "jobs" `number`; "agents" one job, `number` agents and ranks; "ranks" one job, one agent, `number` ranks.
    """
    names = {name for spent in seen.values() for name in spent}

    def solved(name: str) -> tuple[float, ...]:
        one, jobs, agents, ranks = (seen[shape].get(name, 0.0) for shape in ("one", "jobs", "agents", "ranks"))
        each = [more / (number - 1) for more in (jobs - agents, agents - ranks, ranks - one)]
        return one - sum(each), *each

    by_name = {name: solved(name) for name in sorted(names)}
    return {
        thing: {name: found[place] for name, found in by_name.items()}
        for place, thing in enumerate(("base", "job", "agent", "rank"))
    }


def _figures(thing: str, spent: Spent) -> list[Figure]:
    cpu = {name: value for name, value in spent.items() if name not in COUNTS}
    return [
        Figure(f"{thing}_cpu", sum(cpu.values()), "CPU ms/min", parts=cpu),
        Figure(f"{thing}_visits", spent["visits"], "visits/min"),
        Figure(f"{thing}_rows_written", spent["written"], "rows/min"),
    ]


def _minute(muster: Rig) -> Spent:
    url = muster.env["DATABASE_URL"]
    before = rows(url)
    with Meter(lambda: descendants(muster.pid), every=5) as meter:
        time.sleep(SECONDS)
    found = rows(url).since(before)
    per_minute = 60 / SECONDS
    cpu = {name: 1000 * seconds * per_minute for name, seconds in meter.parts().items()}
    return {**cpu, "visits": found.visits * per_minute, "written": found.written * per_minute}


def _start(muster: Rig, *, nodes: int, nproc: int) -> int:
    with tempfile.TemporaryDirectory() as code:
        (Path(code) / "quiet.py").write_text("import time\nwhile True:\n    time.sleep(60)\n")
        # Plain jobs have one rank for each replica. torchrun's launcher is not Muster's and not counted.
        command, framework = ("torchrun quiet.py", "torchrun") if nproc > 1 else ("python3 quiet.py", "plain")
        return muster.client.submit(
            command, queue="default", directory=code, framework=framework, nodes=nodes, nproc_per_node=nproc
        ).id


def _await_ranks(muster: Rig, job: int, ranks: int) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while (found := muster.client.job(job)).ranks.running < ranks:
        if found.is_finished or time.monotonic() > give_up:
            raise RuntimeError(f"job {job} does not run: {found.message}")
        time.sleep(0.5)


def _agents_memory(muster: Rig) -> float:
    """MB of the agent of one replica, the median."""
    sizes = [pss_bytes(one.pid) for one in descendants(muster.pid) if is_agent(one.command)]
    return statistics.median(sizes) / 1e6
