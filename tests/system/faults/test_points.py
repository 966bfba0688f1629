"""A process dies at every named fault point, two or three points per cell, under typical activity of users and jobs."""

import itertools
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent import faultpoints as agent_crash
from common import faultpoints
from tests.support.patience import until
from tests.system.faults.checks import read_claims
from tests.system.faults.life import Life, slow_visit
from tests.system.faults.test_cleaning import COLLECTING, FORGETTING, GARBAGE, PACKING, REMOVING, ROLLING

ROOT = Path(__file__).resolve().parents[3]
# Points with cells of their own, passed only if a job fails (tests/db/control/test_judgement.py), a visit is slow, an agent
# is dead, an elastic job lost a replica, replicas are pods (tests/cluster/api/test_rows.py), the release before wrote no
# row of an attempt (tests/db/control/test_attempts.py), a volume is deleted (tests/db/volumes/test_volumes.py), a template
# names levels (tests/db/control/test_topology.py), a cluster lists its nodes (tests/db/control/test_node_rows.py), a job
# writes checkpoints (tests/db/ingest/test_checkpoints.py), a cluster is checked by pods
# (tests/db/control/test_cluster_checks.py), GPUs are idle (tests/db/control/test_idle_gpus.py), or queues share quota
# (tests/db/scheduling/test_recent_use.py).
SPECIAL = (
    "store.renew",
    "local.drain",
    "local.volume",
    "cluster.end_replicas",
    "ingest.checkpoints",
    "watcher.rows",
    "failures.",
    "attempts.",
    "topology.",
    "nodes.",
    "checks.",
    "idle.",
    "recent_use.",
)
# Logs of pods are read only where there are pods (tests/cluster/node/test_unreachable.py); placement is checked before a
# job is created.
PODS = ("cluster.read_log", "cluster.placement")
BY_COMMAND = tuple(
    {one.rpartition(".")[0] for one in itertools.chain(PACKING, COLLECTING, GARBAGE, ROLLING, FORGETTING, REMOVING)}
)
ON_PODS = (
    "kube.",
    "mesh.",
    "strays.",
)  # these and all others are covered again on pods: tests/cluster/api/test_deaths.py
WEB = ("services", "ingest", "logs", "workspaces", "files")


def points(*families: str) -> list[str]:
    found = [*faultpoints.POINTS, *agent_crash.POINTS]
    return [
        one for one in found if one.split(".")[0] in families and not one.startswith((*SPECIAL, *PODS, *BY_COMMAND))
    ]


def cells() -> list[tuple[str, ...]]:
    """Each cell has one point of the web process, one of the tasks process and one of an agent, while there are any.

    Any process may ring a doorbell, so its points are in separate cells: no process dies twice in a cell.
    """
    columns = points(*WEB), points("scheduler", "store", "cluster", "local", "deliveries"), points("agent")
    rest = itertools.zip_longest(points("doorbell"), points("watcher"))
    return [tuple(filter(None, row)) for row in (*itertools.zip_longest(*columns), *rest)]


def guards(*names: str) -> tuple[str, ...]:
    """The files in which these points stand: a cell guards them."""
    found = {f'"{one.rpartition(".")[0]}"' for one in names}
    return tuple(
        str(path.relative_to(ROOT))
        for folder in ("agent", "common", "jobs", "workspaces")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "faultpoints.py" and any(name in path.read_text() for name in found)
    )


CELLS = cells()
SAMPLE = (7,)  # a batch, a step and an agent at once


def test_every_fault_point_has_a_cell():
    listed = [*itertools.chain(*CELLS), *PACKING, *COLLECTING, *GARBAGE, *ROLLING, *FORGETTING, *REMOVING]
    listed += [one for one in faultpoints.POINTS if one.startswith((*SPECIAL, *PODS, *ON_PODS))]
    assert sorted(listed) == sorted([*faultpoints.POINTS, *agent_crash.POINTS])


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(cell, id="+".join(cell), marks=() if number in SAMPLE else pytest.mark.soak(guards=guards(*cell)))
        for number, cell in enumerate(CELLS)
    ],
)
def test_a_process_dies_at_each_fault_point(installation, matrix, tmp_path, cell):
    installation.arm(*cell)
    life = Life(installation, tmp_path)
    with ThreadPoolExecutor(1) as others:
        lived = others.submit(life.live)
        until(
            lambda: all(map(installation.fired, cell)),
            says=f"{[point for point in cell if not installation.fired(point)]} fired",
        )
        since = max(map(installation.fired_at, cell))
        probe = installation.submit("--lines", "1", nodes=1)
        life.until_phase(probe, "succeeded")
        lived.result()
    took = time.time() - since  # includes the rest of the activity, so it is never too short
    life.end()
    life.check()
    matrix.add_all("crash point", {f"{point} ({what(installation, point)})": took for point in cell}, since=since)


def what(installation, point: str) -> str:
    """The kind of process that died at the point."""
    words = (installation.marks / point).read_text()
    return next((name for name in ("uvicorn", "worker", "watch", "beat", "agent") if name in words), "?")


@pytest.mark.soak(guards=guards("store.renew.before"))
@pytest.mark.parametrize("point", ["store.renew.before", "store.renew.after"])
def test_the_tasks_process_dies_while_it_renews_a_lease(installation, matrix, phase_jobs, point):
    job = installation.submit()
    phase_jobs.until_phase(job, "running")
    installation.arm(point)
    with slow_visit(installation, job):
        installation.api.act(job, "cancel")
        until(lambda: installation.fired(point), says=f"{point} fired")
    since = installation.fired_at(point)
    phase_jobs.until_phase(job, "cancelled")
    matrix.add_all("crash point", {point: time.time() - since})
    phase_jobs.verify(job, "cancelled")


@pytest.mark.soak(guards=guards("local.drain.before"))
@pytest.mark.parametrize("point", ["local.drain.before", "local.drain.after"])
def test_the_tasks_process_dies_while_it_drains_a_spool(installation, matrix, phase_jobs, point):
    job = installation.submit(nodes=1)
    phase_jobs.until_phase(job, "running")
    until(lambda: read_claims(installation, job))
    installation.arm("agent.send.before", point)  # a batch is in the spool, and its agent dies
    until(lambda: installation.fired(point), says=f"{point} fired")
    since = installation.fired_at(point)
    phase_jobs.until_phase(job, "failed")
    matrix.add_all("crash point", {point: time.time() - since})
    phase_jobs.verify(job, "failed")
    ((_, claim),) = read_claims(installation, job).items()
    assert not list((installation.shared(job).parent / "1/worker-0/spool").glob("*.batch"))
    assert claim.lines - len([line for line in installation.api.lines(job) if line["rank"] == 0]) in (0, 1)


@pytest.mark.soak(guards=guards("cluster.end_replicas.before"))
@pytest.mark.parametrize("point", ["cluster.end_replicas.before", "cluster.end_replicas.after"])
def test_the_tasks_process_dies_while_it_ends_a_replica_of_an_elastic_job(installation, matrix, phase_jobs, point):
    job = installation.submit(nodes=3, min_nodes=2)
    phase_jobs.until_phase(job, "running")
    until(lambda: len(read_claims(installation, job)) == 3)
    installation.arm(point)
    pid = next(pid for pid, place in installation.agents(job) if place.name == "worker-2")
    os.kill(pid, signal.SIGKILL)
    until(lambda: installation.fired(point), says=f"{point} fired")
    since = time.time()
    until(
        lambda: installation.api.job(job)["ranks"]["running"] == 3 and replaced(installation, job), says="it came back"
    )
    until(lambda: len(read_claims(installation, job)) == 4)  # it is reported as running before it writes its claim
    matrix.add_all("crash point", {point: time.time() - since})
    installation.finish(job)
    phase_jobs.until_phase(job, "succeeded")
    assert (installation.api.job(job)["attempt"], replaced(installation, job)) == (1, 1)
    assert len(read_claims(installation, job)) == 4  # none ran twice


def replaced(installation, job: int) -> int:
    return sum(event["kind"] == "replaced" for event in installation.api.events(job))


@pytest.mark.full
def test_a_killed_supervisor_does_not_affect_running_jobs(installation, matrix, phase_jobs):
    """The supervisor has no fault points, but may die too. The next one is started as an operator would."""
    job = installation.submit()
    phase_jobs.until_phase(job, "running")
    os.kill(installation.muster.pids["supervisor"], signal.SIGKILL)
    installation.muster.kill()
    since = time.time()
    installation.start()
    until(lambda: phase_jobs.is_right("running", job, since))
    matrix.add_all("kill -9 supervisor", {"running": time.time() - since})
    installation.finish(job)
    phase_jobs.until_phase(job, "succeeded")
    phase_jobs.verify(job, "succeeded", attempts=1)
