"""The life of one replica, from the locks to the last acknowledged batch. docs/wire.md, section 1."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import signal
import sys
import time
import traceback
from dataclasses import replace
from typing import Any

from . import faultpoints, frameworks, launch, linux, names, port
from .code import working
from .code.fetching import Fetching
from .control import ControlPlane
from .launcher import Launcher, Outcome, failed
from .loop import Loop
from .output.checkpoints import LAST_SECONDS, Checkpoints
from .output.followed import Followed
from .output.journal import Journal
from .output.mirror import mirror
from .output.mounted import MountedVolumes
from .output.outbox import Outbox
from .output.salvage import salvage
from .output.sender import BatchSender
from .output.spool import Spool
from .output.tensorboard import EventFiles
from .ranks.ranks import NO_RANK, Ranks
from .ranks.sample import Sampler
from .state import ENDED, StateFolder

DRAIN_SECONDS = float(os.environ.get("MUSTER_DRAIN_SECONDS", "60"))
HOPELESS_DRAIN_SECONDS = 3.0  # if no server ever answered
NOBODY_ANSWERS = 78  # EX_CONFIG of sysexits.h, the exit code of pod_entry.py too
LOOK_SECONDS = 0.2  # at processes that are not the agent's own children
EOF_SECONDS = 2.0  # for what ranks wrote before they were killed
LOST = "its agent was killed"
WITHOUT_RANKS = "no rank was started: the command ended with 0 without torchrun"
STILL_LAUNCHING = "torchrun was still starting its ranks when the command ended with 0"


def run(path: str) -> int:
    """Run the replica of this folder; return its exit code, 0 when there is nothing to start."""
    folder = StateFolder(path)
    with folder.agent_lock() as is_held:
        if not is_held or not _may_start(folder):
            return 0
        try:
            return Replica(folder).live()
        except Exception as error:  # the outermost place: a replica that sends nothing would seem to run forever
            folder.trouble(traceback.format_exc())
            folder.write_status("failed", reason=f"the agent failed: {type(error).__name__}: {error}")
            return 1


def drain(path: str) -> int:
    """Send what an ended replica had not sent yet. Returns 0 when everything was acknowledged.

    What it gives up is marked as undeliverable, so that no process waits for it any longer.
    """
    folder = StateFolder(path)
    with folder.agent_lock() as is_held:
        if not is_held:
            return 0
        folder.write_agent()
        _close_lost(folder)
        spool = Spool(folder.spool)
        frameworks.get(folder.spec().framework).clean(folder)
        salvage(folder, spool=spool, on_text=mirror if folder.spec().mirror else None)
        sender = _sender(folder, spool=spool, on_command=lambda command: None)
        sender.start()
        if not sender.finish(within_seconds=DRAIN_SECONDS):
            folder.mark_undeliverable()
            return 1
        folder.mark_drained()
        return 0


def _may_start(folder: StateFolder) -> bool:
    with folder.attempt_lock():
        _close_lost(folder)
        if folder.is_sealed() or folder.status().get("state") in ENDED:
            return False
        folder.write_agent()
        folder.write_status("starting")
        return True


def _close_lost(folder: StateFolder) -> None:
    """Record a replica whose agent died as failed: its ranks died too, and must not run again within the attempt."""
    if folder.status().get("state") == "running":
        folder.write_status("failed", signal=int(signal.SIGKILL), reason=LOST)


def _sender(folder: StateFolder, *, spool: Spool, on_command: Any) -> BatchSender:
    control = ControlPlane(folder, spec=folder.spec())
    return BatchSender(spool, control=control, on_command=on_command, trouble=folder.trouble)


class Replica:
    """Main thread: everything but sending and sampling."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder, self._spec = folder, folder.spec()
        # Of programs that report none themselves: from lines and event files.
        self._reads_metrics = self._spec.env.get("MUSTER_IGNORE_PRINTED") != "1"
        self._loop = Loop(trouble=folder.trouble)
        self._spool = Spool(folder.spool)
        self._journal = Journal(folder.spool)
        self._outbox = Outbox(self._spool, journal=self._journal, on_text=mirror if self._spec.mirror else None)
        self._launcher: Launcher | None = None
        self._ranks = Ranks(
            self._loop,
            outbox=self._outbox,
            journal=self._journal,
            is_stopping=self._is_stopping,
            expected=self._spec.ranks,
            is_elastic=self._spec.is_elastic,
            reads_printed=self._reads_metrics,
        )
        self._sender = _sender(folder, spool=self._spool, on_command=self._commanded)
        self._sampler = Sampler(self._ranks, outbox=self._outbox, wake=self._loop.wake, trouble=folder.trouble)
        # The first of a role looks for all: they mount the same volumes.
        env = {**os.environ, **self._spec.env}
        self._volumes = (
            MountedVolumes(env, outbox=self._outbox, trouble=folder.trouble) if not self._spec.index else None
        )
        self._checkpoints: Checkpoints | None = None
        self._commands: list[dict[str, Any]] = []  # from the sender's thread
        self._held: Any = None  # the socket on the rendezvous port
        self._complaints: list[Any] = []  # the launcher's streams
        self._followed: Followed | None = None  # its log files
        self._event_files: EventFiles | None = None
        self._drain_seconds = DRAIN_SECONDS
        self._began = 0.0  # monotonic
        self._stop_reason = ""  # a stop request that came before the launch

    def live(self) -> int:
        self._began = time.monotonic()
        linux.become_subreaper()
        outcome = self._prepare() or self._start()
        # Threads only now: a process forks safely while it has one.
        self._sender.start()
        self._sampler.start()
        if self._volumes:
            self._volumes.start()
        if self._followed:
            self._followed.start()
        if outcome is None:
            if self._reads_metrics:
                self._event_files = EventFiles(
                    self._folder.code, on_point=self._ranks.take_scalars, trouble=self._folder.trouble
                )
                self._event_files.start()
            self._list_checkpoints()
            outcome = self._watch()
        self._finish(outcome)
        return outcome.code()

    def _prepare(self) -> Outcome | None:
        if self._spec.hold_port:
            try:
                self._held = port.hold(self._spec.hold_port)
            except OSError as error:
                return failed("port taken" if error.errno == errno.EADDRINUSE else f"the port: {error}")
        if not self._spec.wants_workspace:
            os.makedirs(self._folder.code, exist_ok=True)
        elif refused := self._fetch():
            return refused
        working.mark(self._folder)
        if self._spec.keeps_folder and (carried := working.carry(self._folder, spec=self._spec)):
            self._outbox.item("folder", carried=carried)
        for pause in names.own(os.environ):
            self._loop.turn(until=time.monotonic() + pause)
            self._obey()
            if self._stop_reason:
                return failed(self._stop_reason)
        return None

    def _fetch(self) -> Outcome | None:
        fetching = Fetching(self._folder, spec=self._spec, wake=self._loop.wake)
        fetching.start()
        end = time.monotonic() + (self._spec.give_up_seconds or math.inf)
        while not fetching.is_over and not self._stop_reason:
            if time.monotonic() >= end and not fetching.was_answered:
                self._drain_seconds = min(HOPELESS_DRAIN_SECONDS, DRAIN_SECONDS)
                return failed(fetching.give_up(), exit_code=NOBODY_ANSWERS)
            later = time.monotonic() + 60
            self._loop.turn(until=later if fetching.was_answered else min(end, later))
            self._obey()
        fetching.cancel()
        reason = self._stop_reason or fetching.failure
        return failed(reason) if reason else None

    def _start(self) -> Outcome | None:
        """Check the seal and spawn in one step: after sealing nothing starts."""
        pyz = os.path.abspath(sys.argv[0])
        try:
            launch.write_files(self._spec.secret_files)
        except OSError as error:
            return failed(f"cannot write a secret's file: {error.strerror}")
        env = launch.environment(self._spec, folder=self._folder, pyz=pyz, address=self._ranks.address)
        framework = frameworks.get(self._spec.framework)
        start = self._spec.start(self._folder.code)
        if not os.path.isdir(start) or not os.access(start, os.X_OK):
            return failed(launch.no_folder(self._spec.working_dir, start), exit_code=launch.USAGE_ERROR)
        words = launch.resolve(self._spec.command, framework=framework, env=env, code=start)
        if isinstance(words, launch.Refusal):
            return failed(words.reason, exit_code=words.exit_code)
        words = framework.wrapped(words, spec=self._spec, folder=self._folder, env=env, pyz=pyz)
        with self._folder.attempt_lock():
            self._obey()
            if self._folder.is_sealed() or self._stop_reason:
                return failed(self._stop_reason or "the attempt was closed before the command started")
            return self._spawn(words, env=env, start=start)

    def _spawn(self, words: list[str], *, env: dict[str, str], start: str) -> Outcome | None:
        # Written first: if the agent is killed right after the spawn, the command must not run a second time.
        now = time.time()
        self._folder.write_status("running", at=now, started_at=now)
        self._outbox.begin_journal()
        try:
            grace = self._spec.grace_seconds
            rank = self._spec.ranks.start if self._spec.is_rank else NO_RANK
            with faultpoints.around("agent.spawn"):
                self._launcher = Launcher(
                    words, env=env, folder=self._folder, start=start, grace_seconds=grace, rank=rank
                )
        except OSError as error:
            return failed(launch.not_started(words[0], error), exit_code=launch.NOT_EXECUTABLE)
        self._journal.guardian = self._launcher.guardian
        if self._spec.is_rank:
            self._ranks.adopt(self._launcher.pid, fds=self._launcher.outputs, at=now)
        else:
            self._complaints = [
                self._ranks.add_stream(fd, rank=NO_RANK, author=self._author) for fd in self._launcher.outputs
            ]
        self._followed = frameworks.get(self._spec.framework).followed(self._folder)
        if self._followed:
            self._ranks.add_stream(self._followed.output, rank=NO_RANK)
        self._outbox.item("replica", state="running", at=now)
        return None

    def _author(self, line: bytes) -> int | None:
        number = frameworks.get(self._spec.framework).rank_of(line)
        return None if number is None else self._ranks.named(self._spec.first_rank + number)

    def _watch(self) -> Outcome:
        launcher = self._launcher
        assert launcher is not None
        while not launcher.reap():
            self._turn(until=launcher.deadline)
            if launcher.deadline is not None and time.monotonic() >= launcher.deadline:
                launcher.kill()
        while self._has_grace(launcher):
            self._turn(until=min(launcher.deadline or 0.0, time.monotonic() + LOOK_SECONDS))
            launcher.reap()
        outcome = launcher.outcome()
        if outcome.state == "succeeded" and launcher.was_asked and not self._ranks.any_under_launcher():
            # torchrun ends with 0 only if each rank did. Anything else may have saved when it was asked to stop, and left.
            outcome = replace(outcome, state="failed", reason=launcher.stop_reason)
        self._ranks.killed_at = time.time()
        self._ranks.note_left()
        framework = frameworks.get(self._spec.framework)
        is_launching = not self._ranks.any_seen() and any(map(framework.is_launcher, launcher.left()))
        launcher.kill()
        if self._followed:
            self._followed.finish()
        self._hear_out()
        launcher.reap()
        if self._is_port_taken(outcome):
            return failed("port taken", exit_code=outcome.exit_code)
        if outcome.state == "succeeded" and not self._stop_reason:
            reason = self._ranks.failure() or (STILL_LAUNCHING if is_launching else "")
            if reason:
                return failed(reason, exit_code=1)
            if framework.has_ranks() and not self._spec.is_rank and not self._ranks.any_seen():
                return replace(outcome, reason=WITHOUT_RANKS)
        return outcome

    def _list_checkpoints(self) -> None:
        """The replica with rank 0 lists them for all; where a role before it plans no ranks, its first one does too."""
        if self._spec.checkpoints and not self._spec.index and not self._spec.first_rank:
            again = self._spec.attempt > 1 or self._spec.incarnation > 0
            self._checkpoints = Checkpoints(
                self._spec.checkpoints, outbox=self._outbox, trouble=self._folder.trouble, may_have_some=again
            )
            self._checkpoints.start()

    def _has_grace(self, launcher: Launcher) -> bool:
        """Return whether what a stopped command left behind may go on: a shell ends at once, its trainer saves first."""
        if launcher.deadline is None or time.monotonic() >= launcher.deadline:
            return False
        running = [one.pid for one in self._ranks.running() if linux.is_alive(one.pid)]
        has_others = False
        if self._spec.is_rank or frameworks.get(self._spec.framework).has_ranks():
            has_others = launcher.stop_others({linux.group(pid) for pid in running})
        return launcher.has_group() or bool(running) or has_others

    def _turn(self, *, until: float | None) -> None:
        ticks = [due for due in (stream.due() for stream in self._ranks.streams) if due is not None]
        self._loop.turn(until=min([self._outbox.due(), *ticks, *([] if until is None else [until])]))
        for stream in self._ranks.streams:
            stream.tick()
        self._obey()
        if self._held and self._ranks.any_seen():
            self._held = self._held.close()
        if time.monotonic() >= self._outbox.due():
            self._outbox.flush()

    def _obey(self) -> None:
        signals, self._loop.signals = self._loop.signals, []
        for number in signals:
            if number in (signal.SIGTERM, signal.SIGINT):
                self._stop("stopped on request")
        while self._commands:
            command = self._commands.pop(0)
            if command.get("do") == "stop":
                self._stop(str(command.get("reason") or "stopped by the control plane"), again=False)
            elif command.get("do") == "slow":
                self._outbox.slow(float(command.get("seconds") or 0))

    def _stop(self, reason: str, *, again: bool = True) -> None:
        """Stop the launcher; `again`: whether a repeated request ends the grace period.

        A control plane repeats itself in every reply, a person does not.
        """
        if self._launcher is not None and (again or not self._stop_reason):
            self._launcher.stop(reason)
        self._stop_reason = self._stop_reason or reason

    def _is_stopping(self) -> bool:
        return bool(self._stop_reason)

    def _commanded(self, command: dict[str, Any]) -> None:
        self._commands.append(command)
        self._loop.wake()

    def _hear_out(self) -> None:
        """Read what is left in pipes and sockets: all processes are dead, so nothing will follow."""
        give_up = time.monotonic() + EOF_SECONDS
        self._turn(until=0.0)  # a report's connection may be waiting to be accepted
        while not self._ranks.are_silent() and time.monotonic() < give_up:
            self._turn(until=give_up)
            if self._launcher is not None:
                self._launcher.reap()

    def _is_port_taken(self, outcome: Outcome) -> bool:
        if outcome.state == "succeeded" or self._ranks.any_seen() or self._stop_reason:
            return False
        return any(port.is_complaint(stream.tail) for stream in self._complaints)

    def _finish(self, outcome: Outcome) -> None:
        """Spool the ends first, then write the status, then drain the spool."""
        at = time.time()
        self._sampler.stop()
        if self._checkpoints:
            self._checkpoints.finish()
        if self._volumes:
            self._volumes.stop()
        if self._event_files:
            self._event_files.finish()
        frameworks.get(self._spec.framework).clean(self._folder)
        launcher = self._launcher.pid if self._launcher else 0
        self._ranks.end_all(exit_code=outcome.exit_code, ended_by=outcome.signal, launcher=launcher)
        if not self._spec.keeps_folder and (lost := working.written(self._folder.path)):
            self._outbox.item("folder", lost=working.described(lost))
        if self._checkpoints:
            self._checkpoints.join(LAST_SECONDS)
        end = {"exit_code": outcome.exit_code, "signal": outcome.signal, "reason": outcome.reason, "at": at}
        self._outbox.item("replica", state=outcome.state, **end)
        self._outbox.flush()
        self._journal.close()
        self._folder.write_status(outcome.state, **end)
        self._say_last(outcome.reason)
        if self._ranks.dropped:
            self._folder.trouble(f"{self._ranks.dropped} reported points were dropped: the socket was full")
        if self._sender.finish(within_seconds=self._patience()):
            self._folder.mark_drained()

    def _patience(self) -> float:
        """Return how many seconds to drain for.

        Where no server answered for all that time, the lines are in the container's log, and waiting longer is useless.
        """
        if not self._spec.mirror or not self._spec.give_up_seconds or self._sender.was_answered:
            return self._drain_seconds
        left = self._spec.give_up_seconds - (time.monotonic() - self._began)
        return min(self._drain_seconds, max(left, HOPELESS_DRAIN_SECONDS))

    def _say_last(self, reason: str) -> None:
        if reason and self._spec.last_words:
            with contextlib.suppress(OSError), open(self._spec.last_words, "w", encoding="utf-8") as file:
                file.write(reason[:4000])
