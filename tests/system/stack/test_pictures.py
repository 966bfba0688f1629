"""The README's pictures, taken from real runs of a whole installation. They are put into docs/images with MUSTER_PICTURES=write.

GPUs are those of a stand-in for NVIDIA's management library, which agents load as they load the real one.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from bench.rig import ROOT, Rig, rig
from tests.support import fake_nvml
from tests.support.machine import need_chromium
from tests.support.patience import PATIENCE_SECONDS
from tests.system.stack.conftest import Muster

pytestmark = pytest.mark.long
TRAIN = """
import math, os, random, time
import muster
rank = int(os.environ["RANK"])
random.seed(rank)
for step in range(1, 2001):
    time.sleep(0.25)
    loss = 2.3 * math.exp(-step / 45) + 0.12 + random.gauss(0, 0.02)
    if step % 10 == 0:
        print(f"step {step} loss {loss:.4f} lr 3.0e-4", flush=True)
    muster.report(step=step, total_steps=2000, loss=loss, accuracy=0.97 - 0.86 * math.exp(-step / 30) + random.gauss(0, 0.004))
"""
FAILS = """
import os, time
def batch(label):
    assert 0 <= label < 10, f"label {label} is outside 0..9"
    return label
time.sleep(3)
if os.environ["RANK"] == "2":
    batch(17)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    folder = Path(
        tempfile.mkdtemp(prefix="muster-nvml-")
    )  # of the user of jobs, who cannot pass through pytest's folders
    folder.chmod(0o755)
    if fake_nvml.build(fake_nvml.BUSY, folder) is None:
        pytest.skip("no C compiler")
    environ = {"LD_LIBRARY_PATH": str(folder), "MUSTER_JOB_ENV": "LD_LIBRARY_PATH"}
    with rig(tmp_path_factory.mktemp("installation"), environ=environ) as found:
        yield found
    shutil.rmtree(folder)


@pytest.fixture
def browser(installation: Rig):
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=need_chromium(), args=["--no-sandbox"])
        context = chromium.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
        for pair in installation.cookie.split("; "):
            name, _, value = pair.partition("=")
            context.add_cookies([{"name": name, "value": value, "url": installation.url}])
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE_SECONDS)
        expect.set_options(1000 * PATIENCE_SECONDS)
        yield page
        chromium.close()


def take(page: Page, name: str) -> None:
    folder = ROOT / ("docs/images" if os.environ.get("MUSTER_PICTURES") == "write" else "artifacts/pictures")
    folder.mkdir(parents=True, exist_ok=True)
    page.mouse.move(0, 0)
    page.screenshot(path=folder / f"{name}.png")
    assert (folder / f"{name}.png").stat().st_size > 20_000


def test_the_pictures_of_the_readme(installation: Rig, browser: Page, tmp_path: Path) -> None:
    muster, page = Muster(installation, tmp_path), browser
    installation.manage("queue", "default", "--team", "demo", "--slots", "8")
    command = ["env", "CUDA_VISIBLE_DEVICES=0,1,2,3", "torchrun", "train.py"]
    failing = muster.submit(FAILS, nodes=1, nproc_per_node=4, name="label-check")
    assert muster.until_phase(failing, "failed").first_failure
    job = muster.submit(TRAIN, command=command, nodes=2, nproc_per_node=4, name="llama-sft", max_retries=2)
    muster.until(job, lambda _: (muster.client.ranks(job.id)[3].step or 0) > 150)
    waiting = muster.submit(TRAIN, nodes=2, nproc_per_node=2, name="moe-ablation")
    muster.until(waiting, lambda now: bool(now.reason))

    page.goto(f"{installation.url}/jobs/{job.id}")
    expect(page.locator("#head-step")).to_contain_text("GPU")
    expect(page.locator("#head-step")).to_contain_text("idle")
    expect(page.locator(".chart[data-x]").first).to_be_visible()
    expect(page.locator("#log")).to_contain_text("lr 3.0e-4")
    take(page, "job")
    page.goto(f"{installation.url}/jobs/{failing.id}")
    expect(page.locator(".verdict")).to_contain_text("label 17 is outside 0..9")
    take(page, "failed")
    page.goto(f"{installation.url}/jobs")
    expect(page.locator("#jobs")).to_contain_text("AssertionError: label 17 is outside 0..9")
    expect(page.locator("#jobs")).to_contain_text("llama-sft")
    take(page, "list")
    page.goto(f"{installation.url}/queues/default")
    expect(page.locator("main")).to_contain_text("moe-ablation")
    take(page, "queue")
    for one in (job, waiting):
        installation.client.cancel(one.id)
    muster.until(job, lambda now: now.is_finished)
