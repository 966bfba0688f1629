"""An agent may be killed at any moment: the drain that follows sends every written line exactly once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.output import journal
from agent.output.journal import Journal
from agent.output.lines import Splitter
from agent.output.salvage import salvage
from agent.output.spool import Spool
from agent.state import StateFolder
from tests.process.agent.bench import Bench
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.patience import PATIENCE_SECONDS

# The account is written after the line: a rank killed between the two has written one line more than it states.
RANK = """
import os, sys, time
account = os.open(sys.argv[1] + os.environ.get("RANK", ""), os.O_RDWR | os.O_CREAT)
pause, number = float(sys.argv[2]), 0
while True:
    os.write(1 + number % 2, b"line %d\\n" % number)
    number += 1
    os.pwrite(account, b"%12d" % number, 0)
    pause and time.sleep(pause)
"""
TORCHRUN = """
import os, subprocess, sys
each = {"WORLD_SIZE": "2", "PYTHONUNBUFFERED": "1"}
ranks = [
    subprocess.Popen([os.environ["PYTHON_EXEC"], "rank.py", *sys.argv[1:]],
                     env={**os.environ, **each, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    for rank in range(2)
]
[rank.wait() for rank in ranks]
"""


def numbers(control_plane: FakeControlPlane, rank: int) -> list[int]:
    return [int(text.split()[1]) for text in control_plane.of().texts(rank)]


def assert_all_there(control_plane: FakeControlPlane, account: Path, rank: int) -> None:
    """Assert that each line arrived once, in the order in which both streams were written."""
    found, written = numbers(control_plane, rank), int(account.read_text())
    assert found == list(range(len(found)))
    assert written <= len(found) <= written + 1
    assert [at for at, _, _ in control_plane.of().lines[rank]] == list(range(len(found)))


def drain(bench: Bench, folder: Path) -> None:
    assert bench.start(folder, how="--drain").wait(PATIENCE_SECONDS) == 0
    left = [path.name for path in (folder / "spool").iterdir()]
    assert left == [] and bench.status()["is_drained"]


@pytest.mark.parametrize("pause", ["0", "0.001", "0.05"])
@pytest.mark.parametrize("seconds", [0.15, 0.4, 0.73, 2.6])
def test_no_line_is_lost_when_the_agent_is_killed(
    bench: Bench, control_plane: FakeControlPlane, tmp_path: Path, pause: str, seconds: float
) -> None:
    account = tmp_path / "account"
    folder = bench.replica([sys.executable, "rank.py", str(account), pause], files={"rank.py": RANK})
    agent = bench.start(folder)
    bench.wait_for(lambda: account.exists() and account.read_text())
    time.sleep(seconds)
    agent.kill()
    drain(bench, folder)
    assert_all_there(control_plane, account, -1)


def test_no_line_of_a_rank_is_lost_when_the_agent_is_killed(
    bench: Bench, control_plane: FakeControlPlane, tmp_path: Path
) -> None:
    files = {"rank.py": RANK, "torchrun.py": TORCHRUN}
    command = [sys.executable, "torchrun.py", str(tmp_path / "account"), "0.0005"]
    folder = bench.replica(command, files=files, processes=2)
    agent = bench.start(folder)
    for rank in (0, 1):
        account = tmp_path / f"account{rank}"
        bench.wait_for(lambda account=account: account.exists() and account.read_text())
    time.sleep(0.3)
    agent.kill()
    drain(bench, folder)
    for rank in (0, 1):
        assert_all_there(control_plane, tmp_path / f"account{rank}", rank)


def test_output_in_the_full_pipes_of_a_stopped_agent_is_recovered(
    bench: Bench, control_plane: FakeControlPlane, tmp_path: Path
) -> None:
    account = tmp_path / "account"
    folder = bench.replica([sys.executable, "rank.py", str(account), "0"], files={"rank.py": RANK})
    agent = bench.start(folder)
    bench.wait_for(lambda: account.exists() and account.read_text())
    agent.send_signal(signal.SIGSTOP)
    bench.wait_for(lambda: int(account.read_text()) > 10_000)  # in the pipes, which hold more
    looks = [-1, 0]
    while len(set(looks[-4:])) > 1:  # probably until both are full
        time.sleep(0.3)
        looks.append(int(account.read_text()))
    agent.kill()
    drain(bench, folder)
    assert_all_there(control_plane, account, -1)
    assert len(control_plane.of().texts()) > 10_000


# An agent that is killed between the start of its command and the moment when it notes the command's pipes.
KILLED_EARLY = """
import os, signal, sys, time
from agent import replica
from agent.ranks.ranks import Ranks
folder, account = sys.argv[1:]
def die(self, fd, **_):
    while not os.path.exists(account) or int(open(account).read() or 0) < 100:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
Ranks.add_stream = die
replica.run(folder)
"""


@pytest.mark.parametrize("is_rank", [False, True])
def test_what_a_command_wrote_before_its_pipes_were_noted_is_recovered(
    bench: Bench, control_plane: FakeControlPlane, tmp_path: Path, is_rank: bool
) -> None:
    account, root = tmp_path / "account", Path(__file__).parents[3]
    folder = bench.replica([sys.executable, "rank.py", str(account), "0"], files={"rank.py": RANK}, is_rank=is_rank)
    words = [sys.executable, "-c", KILLED_EARLY, str(folder), str(account)]
    agent = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(root)}, timeout=PATIENCE_SECONDS)
    assert agent.returncode == -signal.SIGKILL
    drain(bench, folder)
    assert len(numbers(control_plane, 0 if is_rank else -1)) >= 100
    assert_all_there(control_plane, account, 0 if is_rank else -1)


@pytest.mark.parametrize("point", ["agent.spool.before", "agent.spool.after", "agent.send.before", "agent.send.after"])
def test_no_line_is_duplicated_by_a_kill_around_a_batch(
    bench: Bench, control_plane: FakeControlPlane, tmp_path: Path, point: str
) -> None:
    account, marks = tmp_path / "account", tmp_path / "marks"
    marks.mkdir()
    folder = bench.replica([sys.executable, "rank.py", str(account), "0.002"], files={"rank.py": RANK})
    agent = bench.start(folder, CRASH_MARKS=str(marks))
    bench.wait_for(lambda: len(numbers(control_plane, -1)) > 100)
    (marks / f"{point}.armed").touch()
    assert agent.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    drain(bench, folder)
    assert_all_there(control_plane, account, -1)


@pytest.mark.parametrize("point", ["agent.list.before", "agent.spawn.before", "agent.spawn.after"])
def test_an_agent_killed_before_any_output_leaves_nothing(
    bench: Bench, control_plane: FakeControlPlane, tmp_path: Path, point: str
) -> None:
    control_plane.code = {"run.sh": b"#!/bin/sh\nsleep 600\n"}
    folder = bench.replica(["./run.sh"], wants_workspace=True)
    assert bench.start(folder, CRASH_MARKS=str(tmp_path), CRASH_AT=point).wait(PATIENCE_SECONDS) == -signal.SIGKILL
    drain(bench, folder)
    assert control_plane.of().texts() == []


def test_a_half_line_read_long_before_the_kill_is_sent(bench: Bench, control_plane: FakeControlPlane) -> None:
    folder = bench.replica(["bash", "-c", "printf '10%%\\r20%%\\r'; echo ready >&2; printf 'half '; sleep 600"])
    agent = bench.start(folder)
    bench.wait_for(lambda: "ready" in control_plane.of().texts())
    time.sleep(1.5)  # its line was sent in a batch and acknowledged
    agent.kill()
    drain(bench, folder)
    assert control_plane.of().texts() == ["ready", "20%", "half "] or control_plane.of().texts()[-1] == "half "


def test_an_agent_that_ends_leaves_no_journal(bench: Bench, control_plane: FakeControlPlane) -> None:
    folder = bench.replica(["echo", "one"])
    bench.start(folder).wait(PATIENCE_SECONDS)
    assert journal.find(str(folder / "spool")) == []


# -- the journal without an agent


@pytest.fixture(params=["splice", "copy"])
def ours(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    if request.param == "copy":  # as with Python before 3.10, and on file systems without splice
        monkeypatch.setattr(journal, "splice", None)
    (tmp_path / "spool").mkdir()
    return Journal(str(tmp_path / "spool"))


def salvaged(tmp_path: Path) -> Spool:
    folder = StateFolder(str(tmp_path))
    spool = Spool(folder.spool)
    salvage(folder, spool=spool)
    return spool


def test_a_journal_returns_what_was_taken(ours: Journal, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    splitter = Splitter(b"half ", b"")
    stream = ours.add(read_end, rank=3, splitter=splitter)
    ours.begin(7, lines={3: 40}, segments={3: 5})
    with pytest.raises(BlockingIOError):
        ours.take(read_end, stream=stream)
    for piece in (b"a line\nand", b" another\n\0\xff"):
        os.write(write_end, piece)
        assert ours.take(read_end, stream=stream) == piece
    os.close(write_end)
    assert ours.take(read_end, stream=stream) == b""
    os.close(read_end)
    found = journal.read(journal.last(str(tmp_path / "spool"))[1])
    assert (found.lines, found.segments, found.halves) == ({3: 40}, {3: 5}, {stream: (3, b"half ", b"")})
    assert [(one.stream, one.rank, one.text) for one in found.entries] == [
        (stream, 3, b"a line\nand"),
        (stream, 3, b" another\n\0\xff"),
    ]
    spool = salvaged(tmp_path)
    assert len(spool) == 1 and spool.get()[0] == 7 and b'"first_line":40,"lines":3' in spool.get()[1]
    assert journal.find(str(tmp_path / "spool")) == []


def test_a_journal_whose_batch_was_written_is_ignored(ours: Journal, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    stream = ours.add(read_end, rank=0)
    ours.begin(1, lines={}, segments={})
    os.write(write_end, b"one\n")
    ours.take(read_end, stream=stream)
    Spool(str(tmp_path / "spool")).put([], blobs=[])  # the agent was killed right after this
    assert [seq for seq, _ in journal.find(str(tmp_path / "spool"))] == [1]
    spool = salvaged(tmp_path)
    assert len(spool) == 1 and spool.next_seq == 2


@pytest.mark.parametrize("content", [b"", b"\0\0", b"\0\0\0\x09not json", b"\0\0\0\x02{}"])
def test_a_damaged_journal_is_deleted(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool/1.journal").write_bytes(content)
    spool = salvaged(tmp_path)
    assert len(spool) == 0 and journal.find(str(tmp_path / "spool")) == []
