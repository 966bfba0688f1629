"""Real Monarch jobs of a whole installation: controller, hosts, actors as ranks, the controller's end."""

import pytest

from tests.system.stack.conftest import ROOT

SOAK = pytest.mark.soak(guards=("agent/frameworks", "jobs/frameworks", "jobs/clusters/local", "requirements/dev.lock"))


# As Monarch's own examples are written, with the defaults of another job: this one's numbers are filled in.
SCRIPT = """
import argparse, os, sys, time
from monarch.actor import Actor, current_rank, endpoint
from monarch.job.kubernetes import KubernetesJob
parser = argparse.ArgumentParser()
parser.add_argument("--num_hosts", type=int, default=7)
parser.add_argument("--gpus_per_host", type=int, default=7)
parser.add_argument("--mesh_name", default="ddpmesh")
options = parser.parse_args()
class Worker(Actor):
    @endpoint
    def hello(self):
        print(f"self.rank={current_rank().rank} hello from", os.environ["MUSTER_REPLICA"], flush=True)
        return os.environ["MUSTER_REPLICA"]
try:
    with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:
        namespace = file.read()
except OSError:
    namespace = "monarch-tests"
job = KubernetesJob(namespace=namespace)
job.add_mesh(options.mesh_name, options.num_hosts)
hosts = getattr(job.state(cached_path=None), options.mesh_name)
workers = hosts.spawn_procs({"gpus": options.gpus_per_host}).spawn("workers", Worker)
answers = workers.hello.call().get()
print("ran on", sorted(answer for _, answer in answers.items()), flush=True)
"""
WAITS = SCRIPT + "\nwhile True:\n    time.sleep(0.1)\n"


def submit(muster, script: str = SCRIPT, **asked):
    return muster.submit(script, command="python3 train.py", framework="monarch", **asked)


@pytest.mark.ci(guards=("agent", "jobs/frameworks", "jobs/clusters/local"))
def test_a_script_attaches_to_its_hosts_and_its_end_is_the_jobs(muster):
    job = submit(muster, nodes=2, nproc_per_node=2)
    ended = muster.until_phase(job, "succeeded", "failed")
    text = muster.text(job)
    assert ended.phase == "succeeded", (ended.message, text)
    assert f"ran on {['mesh-0', 'mesh-0', 'mesh-1', 'mesh-1']}" in text
    for rank in range(4):
        said = [line.text for line in muster.client.logs(job.id, rank=rank)]
        assert said == [f"self.rank={rank} hello from mesh-{rank // 2}"], said
    assert {one.rank: one.replica for one in muster.client.ranks(job.id)} == {n: f"mesh-{n // 2}" for n in range(4)}
    assert ended.layout == "2 mesh + 1 controller"
    assert muster.processes(job) == []


HERE = """
import os, time
from monarch.actor import Actor, current_rank, endpoint, this_host
class Worker(Actor):
    @endpoint
    def hello(self):
        rank, stdout = str(current_rank().rank), os.fstat(1).st_ino
        os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2")
        while os.fstat(1).st_ino == stdout:  # until its output is a rank's
            time.sleep(0.05)
        print("hello from", rank, flush=True)
this_host().spawn_procs({"gpus": 2}).spawn("workers", Worker).hello.call().get()
"""


@SOAK
def test_ranks_of_a_script_that_uses_only_its_own_host_are_the_controllers(muster):
    job = submit(muster, HERE, nodes=1, nproc_per_node=2)
    assert muster.until_phase(job, "succeeded", "failed").phase == "succeeded"
    ranks = {one.rank: (one.replica, one.state) for one in muster.client.ranks(job.id)}
    assert ranks == {0: ("controller-0", "succeeded"), 1: ("controller-0", "succeeded")}
    assert next(iter(muster.client.logs(job.id, rank=1))).text == "hello from 1"


@SOAK
def test_each_rank_of_distributed_training_over_a_mesh_is_seen_by_itself(muster):
    command = ["python3", "monarch_digits.py", "--epochs", "2"]
    job = muster.client.submit(
        command, queue="default", directory=ROOT / "examples", framework="monarch", nodes=2, nproc_per_node=1
    )
    ended = muster.until_phase(job, "succeeded", "failed")
    text = muster.text(job)
    assert ended.phase == "succeeded", (ended.message, text[-40:])
    assert any(line.startswith("test accuracy ") for line in text)
    ranks = {one.rank: one for one in muster.client.ranks(job.id)}
    assert set(ranks) == {0, 1} and {one.state for one in ranks.values()} == {"succeeded"}
    assert all(one.step and one.step > 50 for one in ranks.values())
    for rank in ranks:
        lines = [line.text for line in muster.client.logs(job.id, rank=rank)]
        assert lines.count(f"rank {rank} of 2 on cpu") == 1 and any(line.startswith("step ") for line in lines)


@SOAK
def test_the_example_of_actors_shows_each_rank_its_own_lines(muster):
    command = ["python3", "monarch_actors.py", "--rounds", "2", "--points", "1000"]
    job = muster.client.submit(
        command, queue="default", directory=ROOT / "examples", framework="monarch", nodes=2, nproc_per_node=2
    )
    ended = muster.until_phase(job, "succeeded", "failed")
    text = muster.text(job)
    assert ended.phase == "succeeded", (ended.message, text[-40:])
    assert any(line.startswith("round 2: 4 actors, pi is about 3.") for line in text)
    assert "the actors of the first host alone: 2" in text
    for rank in range(4):
        lines = [line.text for line in muster.client.logs(job.id, rank=rank)]
        assert len(lines) == (3 if rank < 2 else 2) and all(f"self.rank={rank} " in line for line in lines), lines
    assert muster.processes(job) == []


FAILS = (
    SCRIPT.replace(
        "    @endpoint\n",
        """\
    @endpoint
    def fail(self):
        if current_rank().rank == 1:
            eval(os.environ["FAILS_BY"])
        time.sleep(1)
    @endpoint
""",
        1,
    )
    + "\nworkers.fail.call().get()\nprint('went on', flush=True)\ntime.sleep(60)\n"
)


@SOAK
def test_the_controllers_exception_is_the_headline(muster):
    job = submit(muster, SCRIPT + "raise ValueError('the data ran out')\n", nodes=1)
    ended = muster.until_phase(job, "succeeded", "failed")
    assert ended.phase == "failed" and "ValueError: the data ran out" in ended.message, ended.message


@SOAK
@pytest.mark.parametrize(
    ("how", "headline", "kind"),
    [
        ("1 / 0", "controller-0: ZeroDivisionError: division by zero", "user_code"),
        ("os._exit(3)", "controller-0: SupervisionError: the process of the actor workers (hosts 1/2, gpus 0/1) exited with code 3", "user_code"),
        ("os.abort()", "controller-0: SupervisionError: the process of the actor workers (hosts 1/2, gpus 0/1) was ended by SIGABRT (6)", "signal"),
    ],
)  # fmt: skip
def test_an_actors_own_end_is_the_headline(muster, how, headline, kind):
    job = submit(muster, FAILS, nodes=2, env={"FAILS_BY": how})
    ended = muster.until_phase(job, "succeeded", "failed")
    said = [line for line in muster.text(job) if not line.startswith("[-]")]  # Monarch's own log
    assert ended.phase == "failed" and ended.message.startswith(headline), (ended.message, "\n".join(said[-80:]))
    assert ended.first_failure.kind == kind
