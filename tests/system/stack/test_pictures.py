"""The pictures of the README, taken in Chromium from jobs that really run: `cp artifacts/pictures/* docs/images/`.

The GPUs are a stand-in for NVML (tests/support/fake_nvml.py); everything else is what an installation does.
"""

import re
import shutil
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from bench.rig import rig
from tests.support import fake_nvml
from tests.support.machine import need_chromium
from tests.support.patience import PATIENCE_SECONDS, until

ROOT = Path(__file__).resolve().parents[3]
PLACE = ROOT / "artifacts/pictures"
SIZE = {"width": 1440, "height": 960}
EIGHT = {"nodes": 2, "nproc_per_node": 4}

TRAIN = '''
"""A small language model on 8 ranks: next byte of a text, with a checkpoint every 100 steps."""

import os
import time

import muster
import torch
import torch.distributed as dist
from torch import nn

STEPS, WIDTH, LENGTH = 2000, 64, 48
TEXT = torch.tensor(list(open(__file__, "rb").read()))


def batch(rank, step):
    draw = torch.Generator().manual_seed(1000 * step + rank)
    starts = torch.randint(0, len(TEXT) - LENGTH - 1, (16,), generator=draw)
    rows = torch.stack([TEXT[at : at + LENGTH + 1] for at in starts])
    return rows[:, :-1], rows[:, 1:]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(256, WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, 256))
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    print(f"rank {rank}: {sum(one.numel() for one in model.parameters()):,} parameters", flush=True)
    for step in range(1, STEPS + 1):
        began = time.monotonic()
        inputs, targets = batch(rank, step)
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        time.sleep(float(os.environ.get("PACE", "0.25")))
        speed = inputs.numel() / (time.monotonic() - began)
        muster.report(step=step, total_steps=STEPS, loss=loss.item(), grad_norm=norm.item(), tokens_per_s=speed)
        if step % 5 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}  {speed:,.0f} tokens/s", flush=True)


main()
'''
# The same with a damaged record in what one rank reads.
FAILS = TRAIN.replace(
    "    return rows[:, :-1]", "    if (rank, step) == (5, 40):\n        rows[3, 7] = 300\n    return rows[:, :-1]"
)


@pytest.fixture
def fake_gpus(monkeypatch):
    """Where the jobs' user can read it, which pytest's own folders do not allow."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        Path(place).chmod(0o755)
        if fake_nvml.build(fake_nvml.BUSY, Path(place)) is None:
            pytest.fail("a C compiler is needed for the stand-in of NVML: apt-get install gcc libc6-dev")
        monkeypatch.setenv("LD_LIBRARY_PATH", place)
        yield


@pytest.mark.full
def test_pictures_show_a_running_and_a_failed_job_the_queue_and_the_list(tmp_path, fake_gpus):
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    code, broken = tmp_path / "code", tmp_path / "broken"
    for folder, script in ((code, TRAIN), (broken, FAILS)):
        folder.mkdir()
        (folder / "train.py").write_text(script)
    with rig(tmp_path / "installation") as muster, sync_playwright() as playwright:
        client = muster.client
        muster.manage("queue", "research", "--team", "demo", "--slots", "16")
        words = ["env", "CUDA_VISIBLE_DEVICES=0,1,2,3", "torchrun", "train.py"]  # this machine gives jobs no GPU
        failed = client.submit(words, queue="research", directory=broken, name="byte-lm-ablation-2", **EIGHT)
        client.wait(failed.id)
        running = client.submit(words, queue="research", directory=code, name="byte-lm-base", **EIGHT)
        for name, nodes in (("byte-lm-large", 4), ("byte-lm-long-context", 2)):
            client.submit(words, queue="research", directory=code, name=name, nodes=nodes, nproc_per_node=4)
        browser = playwright.chromium.launch(executable_path=need_chromium(), args=["--no-sandbox"])
        context = browser.new_context(
            base_url=muster.url, viewport=SIZE, color_scheme="light", timezone_id="Europe/Berlin"
        )
        context.set_default_timeout(1000 * PATIENCE_SECONDS)
        expect.set_options(1000 * PATIENCE_SECONDS)
        context.add_cookies(muster.browser_cookies)
        page = context.new_page()
        show_running(page, running.id)
        show_failed(page, failed.id)
        show_queue(page)
        show_list(page)
        browser.close()
        client.cancel(running.id)
        client.wait(running.id)
    assert sorted(path.name for path in PLACE.iterdir()) == ["failed.png", "job.png", "list.png", "queue.png"]


def picture(page: Page, name: str) -> None:
    page.screenshot(path=PLACE / f"{name}.png")


def show_running(page: Page, job: int) -> None:
    page.set_viewport_size({"width": 1440, "height": 1240})  # down to the charts
    page.goto(f"/jobs/{job}?rank=3")
    expect(page.locator("#state")).to_contain_text(re.compile(r"GPU \d\d % of 8, 2 idle"))
    until(
        lambda: re.search(r"step (\d,)?[2-9]\d\d", page.locator("#state").inner_text()), seconds=900
    )  # a busy machine trains slowly
    expect(page.locator(".plot canvas").first).to_be_visible()
    picture(page, "job")
    page.set_viewport_size(SIZE)


def show_failed(page: Page, job: int) -> None:
    page.goto(f"/jobs/{job}")
    expect(page.locator("main")).to_contain_text("IndexError: index out of range in self")
    expect(page.locator("main")).to_contain_text("rank 5")
    picture(page, "failed")


def show_queue(page: Page) -> None:
    page.goto("/queues/research")
    expect(page.locator("main")).to_contain_text("byte-lm-large")
    picture(page, "queue")


def show_list(page: Page) -> None:
    page.set_viewport_size({"width": 1440, "height": 440})
    page.goto("/jobs")
    for words in ("byte-lm-base", "byte-lm-ablation-2", "IndexError"):
        expect(page.locator("main")).to_contain_text(words)
    picture(page, "list")
