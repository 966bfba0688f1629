"""A real plain job: three processes of two roles find each other by their environment, and the workers' end is the job's."""

import pytest

from tests.support.meeting import MEETS as SCRIPT
from tests.system.stack.conftest import ROOT

SOAK = pytest.mark.soak(guards=("examples", "jobs/frameworks", "agent/frameworks", "requirements/dev.lock"))


def test_workers_and_a_helper_meet_and_the_workers_end_the_job(muster):
    job = muster.submit(
        SCRIPT, command="python train.py 1", framework="plain", nodes=2,
        fields={"helper_command": ["python", "train.py", "1"], "helpers": 1},
    )  # fmt: skip
    ended = muster.until_phase(job, "succeeded", "failed")
    assert ended.phase == "succeeded", (ended.message, muster.text(job))
    text = muster.text(job)
    assert "met helper-0 worker-1" in text
    assert {"worker-0 is rank 0 of 2", "worker-1 is rank 1 of 2", "helper-0 is rank None of 2"} <= set(text)
    ranks = {one.rank: one for one in muster.client.ranks(job.id)}
    assert [ranks[number].replica for number in (0, 1, 2)] == ["worker-0", "worker-1", "helper-0"]
    assert [ranks[number].state for number in (0, 1)] == ["succeeded", "succeeded"]
    assert [line.text for line in muster.client.logs(job.id, rank=2)] == ["helper-0 is rank None of 2", "serving"]
    assert muster.processes(job) == []


@SOAK
def test_the_command_line_submits_it_by_the_names_of_its_fields(muster):
    (muster.folder / "train.py").write_text(SCRIPT)
    told = muster.command(
        "submit", "--queue", "default", "--dir", str(muster.folder), "--framework", "plain", "--nodes", "1", "--set", "helpers=1",
        "--set", "helper_command=python train.py 1", "--follow", "--", "python", "train.py", "1",
    )  # fmt: skip
    assert "met helper-0" in told and "helper-0 is rank None of 1" in told


def test_a_worker_that_fails_is_named_with_its_error(muster):
    job = muster.submit(SCRIPT, command=["python", "train.py", "0", "the data ran out"], framework="plain", nodes=2)
    ended = muster.until_phase(job, "succeeded", "failed")
    assert (ended.phase, ended.first_failure.rank) == ("failed", 1)
    assert "the data ran out" in ended.message


@SOAK
def test_the_example_for_jax_meets_at_the_coordinator(muster):
    command = ["python", "jax_environment.py"]
    job = muster.client.submit(
        command, queue="default", directory=ROOT / "examples", framework="plain", nodes=3, nproc_per_node=1
    )
    ended = muster.until_phase(job, "succeeded", "failed")
    assert ended.phase == "succeeded", (ended.message, muster.text(job))
    for rank in range(3):
        lines = [line.text for line in muster.client.logs(job.id, rank=rank)]
        assert lines[0].startswith(f"process {rank} of 3 on "), lines
        assert lines[1:] == [f"process {rank} has met 0 1 2"]
