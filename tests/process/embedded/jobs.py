"""A job that trains until it may end, and goes on from its checkpoint: slow enough to be interrupted meanwhile."""

from pathlib import Path

from muster import Client

from embedded.installation import Installation
from tests.support.patience import until

SCRIPT = """
import os, sys, time, muster
place = os.path.join(muster.checkpoints(), "step")
step = int(open(place).read()) if os.path.exists(place) else 0
print("from", step, flush=True)
while not os.path.exists(os.path.join(muster.checkpoints(), "enough")):
    step += 1
    muster.report(step=step)
    open(place + ".new", "w").write(str(step))
    os.replace(place + ".new", place)
    time.sleep(0.05)
"""


def started(muster: Installation, folder: Path) -> int:
    """Submit a job and wait until it has saved a few checkpoints. Return its id."""
    code = folder / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    with Client(muster.url, muster.token) as client:
        job = client.submit("python train.py", queue="default", directory=code, nodes=1, nproc_per_node=1).id
    until(lambda: step_of(muster, job) > 3)
    return job


def step_of(muster: Installation, job: int) -> int:
    found = list(muster.folder.glob(f"local/jobs/{job}-*/shared/**/step"))
    return int(found[0].read_text()) if found else 0


def phase_of(muster: Installation, job: int) -> str:
    with Client(muster.url, muster.token) as client:
        return client.job(job).phase


def finish(muster: Installation, job: int) -> None:
    (next(muster.folder.glob(f"local/jobs/{job}-*/shared/**/step")).parent / "enough").touch()
    until(lambda: phase_of(muster, job) == "succeeded")
