"""Children that die are restarted; ending them takes no longer than their stop signals allow."""

import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from embedded.processes import identity, is_alive, spawn, wait_gone
from embedded.supervisor import StopAsked, Supervisor, backoff, how
from tests.process.embedded.world import ROOT


@dataclass
class Sleeper:
    """A program that sleeps, or does what `script` says first."""

    name: str = "sleeper"
    script: str = "exec sleep 1000"
    stop_signals: tuple[tuple[int, float], ...] = ((signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0))
    started: list[subprocess.Popen] = field(default_factory=list)

    def spawn(self):
        self.started.append(spawn(["sh", "-c", self.script], stdout=subprocess.PIPE))
        return self.started[-1]


@pytest.fixture
def said():
    return []


@pytest.fixture
def supervisor(said):
    one = Supervisor(said.append)
    yield one
    one.end(*list(one.children))


def test_a_child_that_dies_is_restarted_and_reported(supervisor, said):
    sleeper = Sleeper()
    supervisor.start(sleeper)
    sleeper.started[0].kill()
    assert supervisor.wait(lambda: len(sleeper.started) == 2, seconds=10)
    assert said == ["sleeper ended (killed by SIGKILL); it is started again in 0.5 s."]
    assert sleeper.started[1].poll() is None


def test_a_child_that_keeps_dying_is_restarted_with_growing_delays(supervisor, said):
    supervisor.start(Sleeper(script="exit 3"))
    assert supervisor.wait(lambda: len(said) == 2, seconds=10)
    assert said[1] == "sleeper ended (exit code 3); it is started again in 1 s."
    assert [backoff(deaths) for deaths in (1, 2, 3, 6, 7, 50)] == [0.5, 1, 2, 16, 30, 30]


def test_a_child_that_was_asked_to_end_is_not_restarted(supervisor, said):
    sleeper = Sleeper()
    supervisor.start(sleeper)
    supervisor.end("sleeper")
    assert sleeper.started[0].returncode == -signal.SIGTERM
    assert (supervisor.children, said) == ({}, [])


def test_a_child_that_does_not_end_is_killed(supervisor):
    # The line is printed after the trap is set, so the signal cannot arrive before it.
    stubborn = Sleeper(
        script="trap '' TERM; echo set; while :; do sleep 0.1; done",
        stop_signals=((signal.SIGTERM, 0.2), (signal.SIGKILL, 5.0)),
    )
    supervisor.start(stubborn)
    assert stubborn.started[0].stdout.readline() == b"set\n"
    supervisor.end("sleeper")
    assert stubborn.started[0].returncode == -signal.SIGKILL


def test_a_child_waiting_for_its_restart_is_ended_at_once(supervisor, said):
    supervisor.start(Sleeper(script="exit 3"))
    assert supervisor.wait(lambda: bool(said), seconds=10)
    supervisor.end("sleeper")
    assert supervisor.children == {}


def test_changes_are_reported_with_every_pid(said):
    told = []
    supervisor = Supervisor(said.append, on_change=told.append)
    sleeper = Sleeper()
    supervisor.start(sleeper)
    supervisor.end("sleeper")
    assert told == [{"sleeper": sleeper.started[0].pid}, {}]


def test_a_step_returns_its_exit_code_and_output(supervisor):
    step = supervisor.run(lambda out: spawn(["sh", "-c", "echo one; exit 4"], stdout=out))
    assert (step.code, step.out) == (4, "one\n")


def test_a_stop_interrupts_a_step_and_kills_it(supervisor):
    started = []

    def start(out):
        started.append(spawn(["sleep", "1000"], stdout=out))
        supervisor.stops += 1  # as the signal's handler does
        return started[0]

    with pytest.raises(StopAsked):
        supervisor.run(start)
    assert started[0].returncode == -signal.SIGKILL


def test_each_signal_interrupts_one_wait(supervisor):
    supervisor.stops = 1
    with pytest.raises(StopAsked):
        supervisor.wait(lambda: False)
    assert supervisor.wait(lambda: False, seconds=0.01) is False
    supervisor.stops = 2
    with pytest.raises(StopAsked):
        supervisor.wait(lambda: False)


def test_waiting_costs_no_processor_time(supervisor):
    supervisor.start(Sleeper())
    before = os.times()
    supervisor.wait(lambda: False, seconds=1)
    after = os.times()
    assert (after.user + after.system) - (before.user + before.system) <= 0.02


def test_the_chore_runs_every_five_seconds_while_waiting(said):
    """And not more often: what is waited for has no influence on it."""
    done, now = [], [0.0]
    supervisor = Supervisor(said.append, clock=lambda: now[0], chore=lambda: done.append(now[0]))
    for at in (0.0, 1.0, 4.9, 5.0, 5.1, 9.9, 10.0, 30.0):
        now[0] = at
        ticks = iter((False, True))
        supervisor.wait(lambda ticks=ticks: next(ticks), seconds=0.01 if at else None)
    assert done == [0.0, 5.0, 10.0, 30.0]


def test_an_answer_from_a_terminal_is_read(supervisor):
    reader, writer = os.pipe()
    os.write(writer, b"yes\n")
    assert supervisor.ask(reader) == "yes"
    os.close(reader)
    os.close(writer)


def test_an_exit_code_or_signal_is_described_in_words():
    assert (how(1), how(-9)) == ("exit code 1", "killed by SIGKILL")


PARENT = """
import sys, time
from embedded.processes import spawn
print(spawn(["sleep", "1000"]).pid, spawn(["sleep", "1000"], dies_by=None).pid, flush=True)
time.sleep(1000)
"""


def test_children_die_with_a_killed_supervisor_and_untied_processes_survive():
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=env)
    tied, free = (identity(int(pid)) for pid in parent.stdout.readline().split())
    parent.kill()
    parent.wait()
    try:
        assert wait_gone(tied, seconds=5)
        assert is_alive(free)
    finally:
        os.kill(free.pid, signal.SIGKILL)


def test_a_reused_pid_is_not_the_same_process():
    me = identity(os.getpid())
    assert is_alive(me)
    assert not is_alive(type(me)(me.pid, me.started + 1, me.boot))
    assert not is_alive(type(me)(me.pid, me.started, "another boot"))


def test_a_zombie_is_not_alive():
    process = subprocess.Popen(["true"])
    handle = os.pidfd_open(process.pid)
    select.select([handle], [], [], 5)
    assert identity(process.pid) is None
    process.wait()
    os.close(handle)


def test_the_supervisor_imports_nothing_large():
    code = "import sys; import embedded.__main__; print([m for m in ('django', 'httpx', 'celery', 'psycopg', 'redis', 'muster', 'asyncio') if m in sys.modules])"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "[]"
    assert Path(ROOT / "bin/demo").stat().st_mode & 0o111
