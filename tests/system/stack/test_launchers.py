"""Accelerate, DeepSpeed and Lightning under torchrun: the scripts of docs/launchers.md, as they are printed there, and the example."""

import importlib.util
import re
import shutil

import pytest

from tests.system.stack.conftest import ROOT

SOAK = pytest.mark.soak(guards=("docs/launchers.md", "examples", "agent/ranks", "requirements/dev.lock"))
EPOCHS = 20
PAUSE_SECONDS = 0.3  # after each epoch, so that the request to suspend arrives before the last one
REPORT = re.compile(r"^( *)print\(f\"rank .* trained epoch .*\n", re.M)


def needs(library: str, *programs: str):
    missing = [library] * (importlib.util.find_spec(library) is None)
    missing += [name for name in programs if not shutil.which(name)]
    return pytest.mark.skipif(bool(missing), reason=f"{library} needs what is not installed here: {missing}")


def script(library: str) -> str:
    """The only Python script in this library's section of the page."""
    page = (ROOT / "docs/launchers.md").read_text()
    section = re.search(rf"^## {library}$(.*?)(?=^## |\Z)", page, re.S | re.M)
    (found,) = re.findall(r"^```python\n(.*?)^```$", section[1], re.S | re.M)
    return found


def slowed(code: str) -> str:
    return REPORT.sub(rf"\g<0>\g<1>__import__('time').sleep({PAUSE_SECONDS})\n", code)


@pytest.mark.parametrize(
    "library",
    [
        pytest.param("Accelerate", marks=[needs("accelerate"), SOAK]),
        # On CPUs it compiles the kernel of its communication.
        pytest.param("DeepSpeed", marks=[needs("deepspeed", "c++", "ninja"), SOAK]),
        pytest.param("Lightning", marks=[needs("lightning"), SOAK]),
    ],
)
def test_the_script_of_the_page_goes_on_from_its_checkpoint_when_it_is_resumed(muster, library):
    job = muster.submit(slowed(script(library)), nodes=2, env={"EPOCHS": str(EPOCHS)})
    muster.until_line(job, "trained epoch 2")
    muster.client.suspend(job.id)
    muster.until_phase(job, "suspended")
    assert muster.processes(job) == []
    muster.client.resume(job.id)
    ended = muster.until_phase(job, "succeeded", "failed")
    text = muster.text(job)
    assert (ended.phase, ended.attempt, ended.failures) == ("succeeded", 2, 0), (ended.message, text[-40:])
    assert any("going on from" in line for line in text), text
    for rank in (0, 1):
        for epoch in (0, EPOCHS - 1):
            assert text.count(f"rank {rank} of 2 trained epoch {epoch}") == 1
    assert {one.name for one in muster.client.metrics(job.id)} >= {"loss"}


@SOAK
@needs("accelerate")
def test_the_example_saves_when_it_is_suspended_and_goes_on_from_there(muster):
    command = ["torchrun", "accelerate_digits.py", "--epochs", "6", "--step-delay", "0.02"]
    job = muster.client.submit(command, queue="default", directory=ROOT / "examples", nodes=2, nproc_per_node=1)
    muster.until_line(job, "step 100 ")
    muster.client.suspend(job.id)
    muster.until_phase(job, "suspended")
    muster.client.resume(job.id)
    ended = muster.until_phase(job, "succeeded", "failed")
    text = muster.text(job)
    assert (ended.phase, ended.attempt) == ("succeeded", 2), (ended.message, text[-40:])
    resumed = next(line for line in text if "going on from" in line)
    assert int(resumed.rpartition("-")[2]) >= 100
    assert not [line for line in text if "step 100 " in line][2:]  # of each rank once: nothing is trained twice
    (accuracy,) = (line for line in text if line.startswith("test accuracy "))
    assert float(accuracy.split()[2].rstrip("%")) > 90
