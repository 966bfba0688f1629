"""Reading the environments of processes that may belong to a job is bounded, whatever size they claim."""

import subprocess
import sys

import pytest

from agent import linux
from common.machine.process_environ import MOST_BYTES, environ, environs
from tests.support.machine import need
from tests.support.patience import until

MARK = "MUSTER_MARK=7-environs-1"

# The process maps its environment to memory of any size, which needs no privilege (prctl(2), PR_SET_MM_MAP).
POINTS_ELSEWHERE = """
import ctypes, mmap, struct, sys
size = int(sys.argv[1])
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[:40] = (b"\\0" + sys.argv[2].encode() + b"\\0").ljust(40, b"x")
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_ulong
code, code_end, stack = (int(open("/proc/self/stat").read().rpartition(")")[2].split()[field - 3]) for field in (26, 27, 28))
data, data_end, brk, args, args_end = (int(open("/proc/self/stat").read().rpartition(")")[2].split()[field - 3]) for field in range(45, 50))
layout = struct.pack("12Q2I", code, code_end, data, data_end, brk, libc.sbrk(0), stack, args, args_end, at, at + size, 0, 0, 2**32 - 1)
libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_ulong]
print("failed" if libc.prctl(35, 14, layout, len(layout), 0) else "ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process():
    """Starts a process whose environment is a mapping of `size` bytes."""
    started = []

    def start(size: int) -> int:
        one = subprocess.Popen(
            [sys.executable, "-c", POINTS_ELSEWHERE, str(size), MARK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(one)
        need(one.stdout.readline() == b"ready\n", "this kernel has no PR_SET_MM_MAP")
        return one.pid

    yield start
    for one in started:
        one.kill()
        one.wait()


def test_an_environment_is_matched_by_whole_entries():
    one = subprocess.Popen(["sleep", "60"], env={"A": "1", "MUSTER_MARK": "7-environs-1", "B": MARK})
    try:
        until(lambda: environ(one.pid))  # until it has executed sleep
        assert f"\0{MARK}\0".encode() in environ(one.pid)
        assert one.pid in [pid for pid, env in environs() if f"\0{MARK}\0".encode() in env]
        assert one.pid in linux.marked([MARK.encode(), b"A=1"])
        assert one.pid not in linux.marked([MARK.encode(), b"A=11"])
        assert one.pid not in linux.marked([MARK[:-1].encode()])
    finally:
        one.kill()
        one.wait()


def test_an_oversized_environment_is_not_read(process):
    """A process of a job once claimed a gigabyte: the tasks process took 14 GB to search it for a mark."""
    small, large = process(MOST_BYTES - 4096), process(MOST_BYTES * 20)
    assert f"\0{MARK}\0".encode() in environ(small) and small in linux.marked([MARK.encode()])
    assert environ(large) == b"" and large not in linux.marked([MARK.encode()])


def test_a_process_that_has_ended_has_no_environment():
    one = subprocess.Popen(["true"])
    one.wait()
    assert environ(one.pid) == b""
