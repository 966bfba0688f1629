"""Real torchrun through the whole installation: HTTP, Postgres, Celery, agents, ranks."""

import os
import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.support.digits import assert_trained
from tests.support.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[3]

DDP = """
import os, sys, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
print("ready", rank, flush=True)
"""
THIRD_RAISES = (
    DDP
    + """
for step in range(1000):
    dist.all_reduce(torch.ones(1))
    if step == 3 and rank == 3:
        raise ValueError("the data ran out")
"""
)
# The same without torch in the ranks: importing it costs 2.5 CPU seconds for each, and only some tests are about it.
SLEEPS = """
import os, time
print("ready", os.environ["RANK"], flush=True)
time.sleep(600)
"""
STREAMS = 90  # of the 100 that one user may open
QUICK = "import time; print('hello', flush=True); time.sleep(0.2)\n"


def digits(muster, *arguments: str, **asked):
    command = ["torchrun", "ddp_digits.py", *arguments]
    return muster.client.submit(command, queue="default", directory=ROOT / "examples", nodes=2, **asked)


def test_the_digits_job_is_suspended_resumes_from_its_checkpoint_and_reports_metrics(muster):
    """One job of two ranks covers all of it: each start of a rank costs six seconds of CPU, to import torch and more."""
    job = digits(muster, "--save-every", "20", "--step-delay", "0.02", "--epochs", "10", nproc_per_node=1)
    muster.until(job, lambda now: any("step 100 " in line for line in muster.text(job)))
    muster.client.suspend(job.id)
    muster.until_phase(job, "suspended")
    assert muster.processes(job) == []
    (place,) = (muster.rig.installation.folder / "local/jobs").glob(f"{job.id}-*")
    saved = sorted(path.name for path in (place / "shared/checkpoints").iterdir())
    listed = sorted(muster.client.checkpoints(job.id), key=lambda one: one.name)  # by its agent, at its end
    assert saved and [one.name for one in listed] == saved
    assert all(one.step and one.size_bytes and one.seen_at for one in listed)
    muster.client.resume(job.id)
    muster.until(job, lambda now: any("going on from" in line for line in muster.text(job)))
    resumed = next(line for line in muster.text(job) if "going on from" in line)
    assert int("".join(letter for letter in resumed.rsplit("step", 1)[1] if letter.isdigit())) >= 20
    ended = muster.until_phase(job, "succeeded", "failed")
    assert ended.phase == "succeeded", muster.text(job)[-30:]
    assert (ended.attempt, ended.failures) == (2, 0)
    assert_trained(muster.client, job, ranks=2)
    ranks = muster.client.ranks(job.id)
    assert ranks[0].cpu is not None
    assert ranks[0].rss_bytes > 50e6
    assert muster.processes(job) == []


def test_a_script_that_saves_beside_itself_goes_on_from_there_after_a_suspension(muster):
    script = """
import os, time
if os.path.exists("checkpoint.txt"):
    print("going on from", open("checkpoint.txt").read())
else:
    open("checkpoint.txt", "w").write("step 7")
    print("saved", "RANK" in os.environ, flush=True)
    time.sleep(3600)
"""
    job = muster.submit(script, command="python train.py")
    muster.until(job, lambda now: "saved False" in muster.text(job))
    muster.client.suspend(job.id)
    muster.until_phase(job, "suspended")
    muster.client.resume(job.id)
    assert muster.until_phase(job, "succeeded", "failed").phase == "succeeded", muster.text(job)
    assert muster.text(job)[-1] == "going on from step 7"
    notes = [event.message for event in muster.client.events(job.id)]
    assert "Working folder: worker-0 continues with 1 file (6 B) of attempt 1: checkpoint.txt" in notes


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(1, marks=pytest.mark.full),
        pytest.param(20, marks=pytest.mark.soak(guards=("jobs/analysis", "agent/ranks"))),
    ],
)
def test_the_first_failing_rank_is_named_although_others_lose_connections(muster, count):
    """Rank 3 of 4 raises; the others fail because it is gone. Rank 3 is named for every job."""
    jobs = [muster.submit(THIRD_RAISES, nodes=2, nproc_per_node=2) for _ in range(count)]
    blamed = []
    for job in jobs:
        ended = muster.until(job, lambda now: now.phase in ("failed", "succeeded"), seconds=400)
        first = ended.first_failure
        blamed.append(first.rank)
        # torch sometimes aborts a process that is already exiting because of its exception; then SIGABRT is its end.
        assert (first.exit_code, first.signal) in ((1, None), (None, signal.SIGABRT))
        assert any("the data ran out" in line for line in first.last_lines)
        assert ended.message == first.headline
    assert blamed == [3] * count


@pytest.mark.full  # tests/db/control retries without processes, tests/system/faults kills real ones
def test_a_killed_rank_is_named_and_the_job_is_retried_within_its_budget(muster):
    job = muster.submit(SLEEPS, nodes=2, nproc_per_node=2, max_retries=1)
    for attempt in (1, 2):
        muster.until(job, lambda now, attempt=attempt: now.attempt == attempt and now.ranks.running == 4)
        muster.until(job, lambda now, times=attempt: muster.text(job).count("ready 2") == times)
        victim = next(pid for pid in muster.processes(job) if _is_rank(pid, 2))
        os.kill(victim, signal.SIGKILL)
        muster.until(job, lambda now, attempt=attempt: now.attempt > attempt or now.is_finished)
    ended = muster.until_phase(job, "failed")
    assert (ended.attempt, ended.failures) == (2, 2)
    assert (ended.first_failure.rank, ended.first_failure.signal) == (2, signal.SIGKILL)
    told = muster.command("status", str(job.id))
    assert "first failure: rank 2 was ended by SIGKILL (9)" in told
    assert muster.processes(job) == []


def _is_rank(pid: int, rank: int) -> bool:
    """The training process itself: its shim carries the same environment, but runs the agent's file."""
    try:
        env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return (
        f"RANK={rank}".encode() in env
        and b"agent.pyz" not in command
        and b"train.py" in command
        and b"rank-python" not in command
    )


@pytest.mark.parametrize("phase", ["queued", "starting", "running", pytest.param("suspended", marks=pytest.mark.full)])
def test_cancel_in_any_phase_leaves_no_process(muster, phase):
    job = muster.submit(SLEEPS, nodes=2, nproc_per_node=2)
    if phase == "running":
        muster.until_line(job, "ready 0")
    elif phase == "suspended":
        muster.until(job, lambda now: now.ranks.running == 4)
        muster.client.suspend(job.id)
        muster.until_phase(job, "suspended")
    elif phase == "starting":
        muster.until_phase(job, "starting", "running")
    muster.client.cancel(job.id)
    muster.until_phase(job, "cancelled")
    if phase != "queued":
        assert muster.processes(job) == []


@pytest.mark.full  # tests/db/api has it without processes
def test_the_same_script_submitted_twice_is_two_jobs(muster):
    first, second = muster.submit(QUICK), muster.submit(QUICK)
    assert first.id != second.id
    assert first.name != second.name
    for job in (first, second):
        assert muster.until_phase(job, "succeeded", "failed").phase == "succeeded"
        assert muster.text(job).count("hello") == 1


@pytest.mark.full  # tests/db/control has it without processes
def test_the_second_job_waits_for_quota(muster):
    queue = next(queue for queue in muster.client.queues() if queue.name == "default")
    first = muster.submit(SLEEPS, nodes=1, nproc_per_node=queue.nominal)
    muster.until_phase(first, "starting", "running")
    second = muster.submit(QUICK)
    waiting = muster.until(second, lambda now: "free of" in now.message)
    assert waiting.phase == "queued"
    muster.client.cancel(first.id)
    assert muster.until_phase(second, "succeeded", "failed").phase == "succeeded"


@pytest.mark.parametrize(
    ("command", "script", "words"),
    [
        ("trian-it now", QUICK, "trian-it"),
        ("torchrun nosuch.py", QUICK, "nosuch.py"),
        ("torchrun train.py", "import nosuchmodule\n", "rank 0 exited with code 1"),
    ],
)
def test_a_command_that_cannot_start_is_a_clear_failure(muster, command, script, words):
    job = muster.submit(script, command=command)
    ended = muster.until_phase(job, "failed")
    told = f"{ended.message} {ended.first_failure.explanation} {' '.join(ended.first_failure.last_lines)}"
    assert words in told
    if "nosuchmodule" in script:
        assert "nosuchmodule" in told
    assert muster.processes(job) == []


def test_as_many_open_streams_as_one_user_may_have_hold_no_database_connection(muster):
    cookie = muster.rig.sign_in()

    def connections() -> int:
        with psycopg.connect(muster.rig.env["DATABASE_URL"]) as connection:
            rows = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            return rows.fetchone()[0]

    def ask(path: str):
        return urllib.request.urlopen(
            urllib.request.Request(muster.rig.url + path, headers={"Cookie": cookie}), timeout=PATIENCE_SECONDS
        )

    with ThreadPoolExecutor(20) as pool:
        for answer in pool.map(
            lambda _: ask("/jobs"), range(60)
        ):  # with the same concurrency as the opening of the streams
            answer.read()
        before = connections()
        streams = list(pool.map(lambda _: ask("/live"), range(STREAMS)))
    try:
        assert all(one.readline() for one in streams)
        assert connections() < before + 20  # the other processes have pools of their own, which may grow meanwhile
        with ask("/login") as page:
            assert page.status == 200
    finally:
        for one in streams:
            one.close()
