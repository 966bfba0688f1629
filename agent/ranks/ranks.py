"""The ranks of this replica: which are running, what they report, how each of them ended."""

from __future__ import annotations

import functools
import math
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Callable

from .. import linux
from ..loop import Loop
from ..output import blame, printed
from ..output.journal import Journal
from ..output.outbox import Outbox
from ..output.streams import Stream
from . import message_checks
from .alone import Alone
from .peers import Peer, Server

NO_RANK = -1  # the launcher, and processes that report without a RANK
IMPOSSIBLE = -2  # processes whose RANK is no number of a rank; what they report is dropped
HIGHEST_RANK = 2**31 - 1  # that a control plane accepts
MOST_PARENTS = 4  # between a process that writes event files and its rank
FRESH_SECONDS = 10.0  # an older traceback was survived
_LARGEST = int(sys.float_info.max)  # the largest integer that a float can represent
_STOPS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT)


@dataclass
class Rank:
    """One rank. `streams` has its output, stdout and stderr in one pipe; empty for one known only through muster.report."""

    rank: int
    local_rank: int
    world: dict[str, int] = field(
        default_factory=dict
    )  # of an elastic job: RANK and WORLD_SIZE as torchrun currently assigns them
    is_expected: bool = True  # False: not one of this replica's planned ranks; the control plane may give it a row
    world_size: int | None = None  # WORLD_SIZE when it began
    local_size: int | None = None  # of an unexpected one: LOCAL_WORLD_SIZE, which shows a user what to change
    visible: str | None = None  # CUDA_VISIBLE_DEVICES
    pid: int = 0
    restart: int = 0  # how often it was started before, in this replica
    launcher: int = 0  # pid of the process that started its shim
    is_command: bool = False  # the replica's command itself, without a shim
    is_named: bool = False  # known only by lines that name it; which process prints them is not known
    is_quiet: bool = False  # a process of a launcher that ends it without reporting how
    streams: list[Stream] = field(default_factory=list)
    oom_kills: int | None = field(default_factory=linux.oom_kills)  # the control group's count when it began
    was_signalled: bool = False  # its launcher signalled the whole process group to stop
    is_ended: bool = False
    has_failed: bool = False
    is_left: bool = False  # it ran when the replica's command had ended, and was killed
    is_late: bool = False  # it was first heard of after that

    @property
    def has_number(self) -> bool:
        """Return whether a control plane accepts its number; the lines of another one are the launcher's."""
        return 0 <= self.rank <= HIGHEST_RANK


class Ranks:
    """Receives messages of shims and reports, fills the outbox.

    Belongs to the main thread; `running` may be called from others.
    """

    def __init__(
        self,
        loop: Loop,
        *,
        outbox: Outbox,
        journal: Journal,
        is_stopping: Callable[[], bool],
        expected: range,
        is_elastic: bool = False,
        reads_printed: bool = True,
    ) -> None:
        """Prepare for the ranks `expected` of this replica.

        `reads_printed`: whether metrics are taken from lines of ranks that report none themselves.

        Those of an elastic job are numbered by local rank, whatever RANK is.
        """
        self._loop, self._outbox, self._journal, self._is_stopping = loop, outbox, journal, is_stopping
        self._expected, self._is_elastic = expected, is_elastic
        self._reads_printed = reads_printed
        self._ranks: dict[int, Rank] = {}
        self._group: list[Rank] = []  # the last ones that one launcher started together,
        self._group_id = (0, 0)  # its pid and how often it had restarted them before
        self._alone = Alone()
        self._reporting: set[int] = set()  # ranks that report metrics themselves
        self.streams: list[Stream] = []
        self.killed_at = math.inf  # when the command had ended and what it left was killed, seconds since the epoch
        self.dropped = 0  # points that a full socket did not accept
        self._server = Server(loop, on_message=self._receive, on_gone=self._gone)
        self.address = self._server.address

    def any_seen(self) -> bool:
        return bool(self._ranks)

    def any_under_launcher(self) -> bool:
        """Return whether a launcher such as torchrun has started ranks: its exit code speaks for all of them."""
        return any(one.launcher for one in self._ranks.values())

    def running(self) -> list[Rank]:
        return [one for one in self._open() if one.has_number]

    def look_for_lonely(self) -> None:
        """Report ranks that a launcher such as torchrun started together and that train without a process group."""
        started = {one.rank: one.pid for one in self.running() if one.launcher and (one.world_size or 0) > 1}
        if ranks := self._alone.look(started):
            self._outbox.item("alone", ranks=ranks)

    def _open(self) -> list[Rank]:
        return [one for one in list(self._ranks.values()) if one.pid and not one.is_ended]

    def are_silent(self) -> bool:
        """Return whether no process is left that could send anything more."""
        return not self._server.peers and not any(stream.is_open for stream in self.streams)

    def add_stream(self, fd: int, *, rank: int, author: Callable[[bytes], int | None] | None = None) -> Stream:
        stream = Stream(
            fd,
            rank=rank,
            loop=self._loop,
            outbox=self._outbox,
            journal=self._journal,
            author=author,
            on_text=functools.partial(self._printed, rank) if self._reads_printed and self._may_print(rank) else None,
        )
        self.streams = [one for one in self.streams if one.is_open] + [stream]
        return stream

    def _may_print(self, rank: int) -> bool:
        """Whether metrics are looked for: also in what a script prints in place of the one rank that is planned."""
        return rank != NO_RANK or len(self._expected) == 1

    def adopt(self, pid: int, *, fds: list[int], at: float) -> None:
        """Take the replica's command, whose stdout and stderr are `fds`, as its one rank."""
        rank = Rank(self._expected.start, 0, pid=pid, is_command=True)
        rank.streams = [self.add_stream(fd, rank=rank.rank) for fd in fds]
        self._ranks[rank.rank] = rank
        self._running(rank, at=at)

    def note_left(self) -> None:
        """Mark ranks that still run although the replica's command has ended, before they are killed.

        Not those whose launcher has ended: it left them, and they end with it.
        """
        for rank in self._group:
            rank.is_left = not rank.is_ended and linux.is_alive(rank.launcher)

    def failure(self) -> str:
        """Return what went wrong with the ranks that were started last, empty if nothing did.

        A command may end with 0 all the same: `torchrun train.py | tee log`, `|| true`, or a torchrun in the background.
        """
        for rank in self._group:
            if rank.is_left:
                return f"rank {rank.rank} was still running when the command ended with 0"
            if rank.has_failed and not rank.was_signalled:
                return f"rank {rank.rank} failed, although the command ended with 0"
        return ""

    def named(self, number: int) -> int:
        """Return the number for a rank that a line of the launcher's output names; it runs from its first line on."""
        if number not in self._expected:
            return NO_RANK
        if number not in self._ranks:
            rank = Rank(number, number - self._expected.start, is_named=True)
            self._ranks[number] = rank
            self._running(rank, at=time.time())
        return number

    def end_all(self, *, exit_code: int | None, ended_by: int | None, launcher: int = 0) -> None:
        """End ranks that never reported their end: they ended with the launcher, or were killed after it.

        `launcher` is its pid: where it was ended by a signal, a rank in another process was ended because of it.
        """
        for rank in [one for one in self._ranks.values() if one.is_named and not one.is_ended]:
            rank.was_signalled = ended_by is not None or self._is_stopping()
            self._end(rank, exit_code=None if rank.was_signalled else exit_code, ended_by=ended_by, at=time.time())
        for rank in self._open():
            if rank.is_command:
                self._end(rank, exit_code=exit_code, ended_by=ended_by, at=min(self.killed_at, time.time()))
                continue
            if rank.streams or (ended_by is not None and rank.pid != launcher):
                rank.was_signalled = True
            if rank.streams:
                self._end(rank, exit_code=None, ended_by=int(signal.SIGKILL), at=time.time())
            else:
                self._end(rank, exit_code=exit_code, ended_by=ended_by, at=time.time())

    def _receive(self, peer: Peer, message: Any) -> None:
        if isinstance(message, list):
            self._point(peer, message)
        elif "hello" in message:
            self._greet(peer, message["hello"])
        elif "announce" in message:
            self._announce(peer, message["announce"])
        elif "dropped" in message:
            self.dropped += message["dropped"]
        elif "nodes" in message:
            self._outbox.newest("nodes", **_known(message["nodes"]))
        elif peer.rank is not None:
            self._update(peer.rank, message)

    def _update(self, rank: Rank, message: dict[str, Any]) -> None:
        if "pid" in message:
            rank.pid = message["pid"]
            self._running(rank, at=message["at"])
        elif "signalled" in message:
            rank.was_signalled = True
        elif "end" in message:
            end = message["end"]
            is_after = message["at"] >= self.killed_at
            rank.was_signalled |= end["signal"] == signal.SIGKILL and is_after
            rank.is_left |= rank.is_late and is_after
            self._end(rank, exit_code=end["exit_code"], ended_by=end["signal"], at=message["at"])

    def _greet(self, peer: Peer, hello: dict[str, Any]) -> None:
        rank = self._placed(hello["rank"], local_rank=hello["local_rank"], world_size=hello.get("world_size"))
        rank.visible, rank.local_size = hello.get("visible"), hello.get("local_size") or None
        rank.world_size = hello.get("world_size")
        rank.streams = [self.add_stream(fd, rank=rank.rank if rank.has_number else NO_RANK) for fd in peer.fds]
        rank.launcher, rank.is_quiet = hello.get("launcher") or 0, hello.get("is_quiet") is True
        rank.is_late = time.time() >= self.killed_at
        peer.rank, peer.fds = rank, []
        before = self._ranks.get(rank.rank)
        # A launcher that restarts its ranks counts that; a shell that starts one launcher after another does not.
        counted = hello.get("restart") or 0
        rank.restart = min(max(counted, before.restart + 1 if before else 0), message_checks.LARGEST)
        self._ranks[rank.rank] = rank
        if rank.launcher:
            self._join_group(rank, started_by=(rank.launcher, counted))
        peer.welcome()

    def _join_group(self, rank: Rank, *, started_by: tuple[int, int]) -> None:
        if started_by != self._group_id:
            self._group, self._group_id = [], started_by
        self._group.append(rank)

    def _announce(self, peer: Peer, who: dict[str, Any]) -> None:
        # Only its number is stored: the end of this connection is not the end of the rank.
        if who.get("rank") is None:
            peer.rank = self._command_rank()
            return
        placed = self._placed(who["rank"], local_rank=who.get("local_rank") or 0)
        peer.rank = placed.rank if placed.has_number else IMPOSSIBLE
        if placed.rank not in self._ranks:
            placed.visible, placed.pid = who.get("visible"), who["pid"]
            self._ranks[placed.rank] = placed
            self._running(placed, at=time.time())

    def _command_rank(self) -> int:
        """Return the rank that the replica's command is, to which processes without a RANK belong; else NO_RANK."""
        return next((one.rank for one in self._ranks.values() if one.is_command), NO_RANK)

    def _placed(self, number: int, *, local_rank: int, world_size: int | None = None) -> Rank:
        if not (self._is_elastic and self._expected):
            return Rank(number, local_rank, is_expected=number in self._expected)
        world = {"world_rank": number, "world_size": world_size} if world_size else {"world_rank": number}
        place = self._expected.start + local_rank
        return Rank(place, local_rank, world=world, is_expected=place in self._expected)

    def _printed(self, number: int, text: bytes) -> None:
        """Take metrics from what a rank prints, until it reports some itself."""
        if number == NO_RANK:
            if self.any_seen():
                return
            number = self._expected.start
        if number in self._reporting:
            return
        for one in printed.read(text):
            self._add_point(number, [time.time(), one.step, one.numbers()])

    def take_scalars(self, pid: int | None, point: list[Any]) -> None:
        """Take a point of an event file, for the rank that its process is or belongs to; else for the first rank.

        May be called from another thread.
        """
        owners = {one.pid: one.rank for one in list(self._ranks.values()) if one.pid and one.has_number}
        above = pid
        for _ in range(MOST_PARENTS):
            if not above or above in owners:
                break
            above = linux.parent(above)
        first = self._expected.start if self._expected else NO_RANK
        self._add_point(owners.get(above or 0, first), point)

    def _point(self, peer: Peer, point: list[Any]) -> None:
        if isinstance(peer.rank, int):
            self._reporting |= set(self._expected) if peer.rank == NO_RANK else {peer.rank}
        if isinstance(peer.rank, int) and peer.rank != IMPOSSIBLE:
            point[2] = {str(name): value for name, value in point[2].items() if _is_number(value)}
            self._add_point(peer.rank, point)

    def _add_point(self, rank: int, point: list[Any]) -> None:
        self._outbox.point(rank, point=point)
        self._alone.stepped(rank)

    def _gone(self, peer: Peer) -> None:
        for fd in peer.fds:
            os.close(fd)
        rank = peer.rank
        if isinstance(rank, Rank) and not rank.is_ended:
            if rank.is_quiet and not self._is_stopping():
                self._end_quietly(rank)
                return
            # A shim that ends without a report was killed, and its rank with it (PDEATHSIG), usually because its
            # launcher was.
            is_orphan = rank.launcher and not linux.is_alive(rank.launcher)
            rank.was_signalled |= is_orphan or any(other.has_failed for other in self._ranks.values())
            self._end(rank, exit_code=None, ended_by=int(signal.SIGKILL), at=time.time())

    def _end_quietly(self, rank: Rank) -> None:
        """End a rank whose launcher ends it when its work is done: what it printed last shows whether that went well."""
        for stream in rank.streams:
            stream.pull()
        kills = linux.oom_kills()
        if kills is not None and rank.oom_kills is not None and kills > rank.oom_kills:
            self._end(rank, exit_code=None, ended_by=int(signal.SIGKILL), at=time.time())
            return
        error_at, at = blame.blame(_tail(rank), signal=None).error_at, time.time()
        has_failed = error_at is not None and at - error_at <= FRESH_SECONDS
        self._end(rank, exit_code=None if has_failed else 0, ended_by=None, at=at)

    def _running(self, rank: Rank, *, at: float) -> None:
        more = dict(rank.world)
        if rank.local_size and not rank.is_expected:
            more["local_world_size"] = rank.local_size
        self._state(rank, pid=rank.pid, state="running", at=at, **more)

    def _state(self, rank: Rank, **values: Any) -> None:
        if rank.has_number:
            self._outbox.item("rank", rank=rank.rank, local_rank=rank.local_rank, restart=rank.restart, **values)

    def _end(self, rank: Rank, *, exit_code: int | None, ended_by: int | None, at: float) -> None:
        if rank.is_ended:
            return
        for stream in rank.streams:
            stream.pull()
        rank.is_ended, rank.has_failed = True, exit_code != 0
        facts = self._facts(rank, exit_code=exit_code, ended_by=ended_by, at=at) if rank.has_failed else {}
        state = "failed" if rank.has_failed else "succeeded"
        self._state(rank, state=state, exit_code=exit_code, signal=ended_by, at=at, **facts)

    def _facts(self, rank: Rank, *, exit_code: int | None, ended_by: int | None, at: float) -> dict[str, Any]:
        tail = _tail(rank)
        found = blame.blame(tail, signal=ended_by)
        # A line is stamped when it is read, possibly a nap after it was written: an error is never later than the end.
        error_at = None if found.error_at is None else min(found.error_at, at)
        # A shell, and a program that saves first, end by a stop with 128 and the signal's number.
        stop = ended_by if exit_code is None else exit_code - 128
        is_stopped = rank.was_signalled or (stop in _STOPS and self._is_stopping())
        error: dict[str, Any] = dict(blame.last_words(tail, ended_at=at, signal=None if is_stopped else ended_by))
        if is_stopped:  # only whether it had failed, or waited for a peer, before it was stopped
            error = {"traceback": error["traceback"]}
        kills = linux.oom_kills()
        error["oom_kills"] = None if kills is None or rank.oom_kills is None else max(0, kills - rank.oom_kills)
        return {
            "error": error,
            "error_at": error_at,
            "is_connection_error": found.is_connection_error,
            "is_stopped": is_stopped,
        }


def _tail(rank: Rank) -> list[blame.Line]:
    """Return the last lines that a rank wrote, on both streams."""
    return [line for stream in rank.streams for line in stream.tail]


def _known(report: dict[str, Any]) -> dict[str, Any]:
    """Return only the fields that were checked (message_checks.py)."""
    names = ("name", *message_checks.AMOUNTS, "actors")
    nodes = [{name: one[name] for name in names if name in one} for one in report["nodes"]]
    return {"nodes": nodes, **{name: report[name] for name in ("framework", *message_checks.WAITING) if name in report}}


def _is_number(value: Any) -> bool:
    """Return whether this is a JSON number that a database accepts; null stands for a non-finite one."""
    if isinstance(value, int):
        return abs(value) <= _LARGEST
    return value is None or (isinstance(value, float) and math.isfinite(value))
