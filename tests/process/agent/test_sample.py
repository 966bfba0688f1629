"""What a rank used, read of its processes: the last thing told of one that ended is what it used, not nothing."""

import os
import subprocess
import sys
import time

import pytest

from agent.sample import Usage


def boot_seconds() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.fixture
def child():
    words = [sys.executable, "-c", "print(sum(range(10**6)), flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline()
        yield child
        child.kill()


def test_a_process_that_runs_has_cpu_and_memory(child):
    cpu, rss_bytes = Usage(child.pid).measure(now=boot_seconds())
    assert cpu > 0 and rss_bytes > 1e6


def test_one_that_ended_and_waits_for_its_parent_used_no_memory_that_is_worth_telling(child):
    usage = Usage(child.pid)
    assert usage.measure(now=boot_seconds())
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still to be waited for
    assert usage.measure(now=boot_seconds()) is None
