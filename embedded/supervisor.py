"""Keep children running: restart them when they die, end them in order, sleep in between.

It blocks on pidfds, signals, due restarts and its chore, and never polls. All waiting happens in `wait`, so that a
dying child or a Ctrl-C is noticed whatever else is going on.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 30.0
CHORE_SECONDS = 5.0
HEALTHY_SECONDS = 5.0  # a child that ran this long was working: its next death counts as the first again
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Process = subprocess.Popen[bytes]


class Program(Protocol):
    """A program that can be started repeatedly."""

    @property
    def name(self) -> str: ...
    @property
    def stop_signals(self) -> tuple[tuple[int, float], ...]: ...
    def spawn(self) -> Process: ...


class StopAsked(Exception):
    """A signal requested the end during a wait."""


@dataclass
class Child:
    program: Program
    process: Process
    handle: int
    since: float
    deaths: int = 0  # in a row, without a healthy time between
    due: float | None = None


@dataclass(frozen=True)
class Step:
    """A finished short process: its exit code and output."""

    code: int
    out: str


@dataclass
class Supervisor:
    say: Callable[[str], None]
    on_change: Callable[[dict[str, int]], None] = lambda pids: None
    clock: Callable[[], float] = time.monotonic
    chore: Callable[[], None] | None = None  # called every few seconds during any wait
    chore_due: float = 0.0
    children: dict[str, Child] = field(default_factory=dict)
    stops: int = 0  # how often a signal requested the end
    _heard: int = 0
    _selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    def listen(self) -> None:
        """Handle SIGINT, SIGTERM and SIGHUP. Only in the main thread of a dedicated process."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            signal.signal(number, self._asked)
        self._selector.register(reader, selectors.EVENT_READ, lambda: os.read(reader, 512))

    def start(self, program: Program) -> None:
        self.adopt(program, process=program.spawn())

    def adopt(self, program: Program, *, process: Process) -> None:
        handle = self.watch(process, lambda: self._died(program.name))
        deaths = self.children[program.name].deaths if program.name in self.children else 0
        self.children[program.name] = Child(program, process, handle, since=self.clock(), deaths=deaths)
        self._changed()

    def wait(self, until: Callable[[], bool], *, seconds: float | None = None) -> bool:
        """Wait until `until()` holds; False when the seconds ran out. Raises StopAsked once per signal."""
        end = None if seconds is None else self.clock() + seconds
        while not until():
            if self.stops > self._heard:
                self._heard = self.stops
                raise StopAsked
            if end is not None and self.clock() >= end:
                return False
            self._once(end)
        return True

    def run(self, spawn: Callable[[int], Process]) -> Step:
        """Run a short process to its end; `spawn` gets the descriptor for its output. Interrupted, it is killed."""
        out = os.memfd_create("step")
        try:
            process = spawn(out)
            self._finish(process)
            os.lseek(out, 0, os.SEEK_SET)
            with os.fdopen(os.dup(out), "rb") as file:
                return Step(code=process.returncode, out=file.read().decode(errors="replace"))
        finally:
            os.close(out)

    def ask(self, stream: int) -> str:
        """Read one line from a terminal, while children and signals are still handled."""
        lines: list[bytes] = []
        self._selector.register(stream, selectors.EVENT_READ, lambda: lines.append(os.read(stream, 4096)))
        try:
            self.wait(lambda: bool(lines))
        finally:
            self._selector.unregister(stream)
        return lines[0].decode(errors="replace").strip()

    def end(self, *names: str) -> None:
        """End these children: all are signalled at once, then each is waited for, and those that remain are killed."""
        ending = [child for name in names if (child := self.children.pop(name, None))]
        for child in ending:
            self.unwatch(child.handle)
            if child.process.poll() is None:
                child.process.send_signal(child.program.stop_signals[0][0])
        for child in ending:
            _insist(child.process, signals=child.program.stop_signals)
        self._changed()

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self.stops += 1

    def watch(self, process: Process, act: Callable[[], object]) -> int:
        handle = os.pidfd_open(process.pid)
        self._selector.register(handle, selectors.EVENT_READ, act)
        return handle

    def unwatch(self, handle: int) -> None:
        if handle >= 0:
            self._selector.unregister(handle)
            os.close(handle)

    def _finish(self, process: Process) -> None:
        ended: list[bool] = []
        handle = self.watch(process, lambda: ended.append(True))
        try:
            self.wait(lambda: bool(ended))
        except BaseException:  # asked to stop, or something it needs is gone
            process.kill()
            raise
        finally:
            self.unwatch(handle)
            process.wait()

    def _once(self, end: float | None) -> None:
        dues = [child.due for child in self.children.values() if child.due is not None]
        if self.chore is not None:
            dues.append(self.chore_due)
        soonest = min([*dues, *([end] if end is not None else [])], default=None)
        for key, _ in self._selector.select(None if soonest is None else max(soonest - self.clock(), 0)):
            key.data()
        self._restart_due()
        self._do_chore()

    def _died(self, name: str) -> None:
        child = self.children[name]
        code = child.process.wait()
        self.unwatch(child.handle)
        child.handle = -1
        lived = self.clock() - child.since
        child.deaths = 1 if lived >= HEALTHY_SECONDS else child.deaths + 1
        pause = backoff(child.deaths)
        child.due = self.clock() + pause
        self.say(f"{name} ended ({how(code)}); it is started again in {pause:g} s.")

    def _restart_due(self) -> None:
        for child in list(self.children.values()):
            if child.due is not None and child.due <= self.clock():
                child.due = None
                self.start(child.program)

    def _do_chore(self) -> None:
        if self.chore is not None and self.clock() >= self.chore_due:
            self.chore_due = self.clock() + CHORE_SECONDS
            self.chore()

    def _changed(self) -> None:
        self.on_change({name: child.process.pid for name, child in self.children.items()})


def backoff(deaths: int) -> float:
    """Return the seconds to wait after that many deaths in a row."""
    return float(min(FIRST_BACKOFF_SECONDS * 2 ** (deaths - 1), LONGEST_BACKOFF_SECONDS))


def how(code: int) -> str:
    """Describe an exit code as subprocess returns it: negative for a signal."""
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def _insist(process: Process, *, signals: tuple[tuple[int, float], ...]) -> None:
    """Wait and send the further signals; the first was sent already."""
    for number, (_, seconds) in enumerate(signals):
        if number:
            process.send_signal(signals[number][0])
        try:
            process.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            continue
