"""Usage of a rank, measured from its processes: the last sample of an ended rank is real usage, not zero."""

import os
import subprocess
import sys
import time

import pytest

from agent.ranks.sample import ProcessUsage


def boot_seconds() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.fixture
def child():
    words = [sys.executable, "-c", "print(sum(range(10**6)), flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline()
        yield child
        child.kill()


def test_a_running_process_has_cpu_and_memory(child):
    cpu, rss_bytes = ProcessUsage(child.pid).measure(now=boot_seconds())
    assert cpu > 0 and rss_bytes > 1e6


def test_a_zombie_gives_no_sample(child):
    usage = ProcessUsage(child.pid)
    assert usage.measure(now=boot_seconds())
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not reaped yet
    assert usage.measure(now=boot_seconds()) is None
