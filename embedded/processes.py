"""Identify processes by pid, start time and boot, never by a pid alone; and start our own."""

import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from .account import Account

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Identity:
    pid: int
    started: int  # clock ticks since boot, field 22 of /proc/<pid>/stat (proc(5))
    boot: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def identity(pid: int) -> Identity | None:
    """Return the process that has this pid now; None when there is none, or only a zombie."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else Identity(pid=pid, started=int(after_name[19]), boot=_boot())


def is_alive(known: Identity) -> bool:
    return identity(known.pid) == known


def send(known: Identity, *, number: int) -> bool:
    """Signal that process and no later owner of its pid. False when it is gone."""
    try:
        handle = os.pidfd_open(known.pid)
    except OSError:
        return False
    try:
        if not is_alive(known):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def wait_gone(known: Identity, *, seconds: float) -> bool:
    """Block until the process ends, which need not be a child of ours; False when the seconds ran out."""
    try:
        handle = os.pidfd_open(known.pid)
    except OSError:
        return True
    try:
        return not is_alive(known) or bool(_poll(handle, seconds=seconds))
    finally:
        os.close(handle)


def end(known: Identity, *, signals: Sequence[tuple[int, float]]) -> bool:
    """Send each signal and wait its seconds, until the process is gone; return whether it is."""
    for number, seconds in signals:
        if not send(known, number=number) or wait_gone(known, seconds=seconds):
            return True
    return not is_alive(known)


def spawn(
    argv: Sequence[str | Path],
    *,
    log: IO[bytes] | int | None = None,
    env: dict[str, str] | None = None,
    account: Account | None = None,
    dies_by: int | None = signal.SIGTERM,
    folder: Path | None = None,
    **options: Any,
) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own, so that Ctrl-C reaches only the supervisor.

    `dies_by` is sent by the kernel when the *thread* that called this ends (prctl(2)), so call it from one that stays.
    """
    who: dict[str, Any] = {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}
    return subprocess.Popen(
        [str(part) for part in argv],
        env=env,
        cwd=folder,
        stdin=options.pop("stdin", subprocess.DEVNULL),
        stdout=options.pop("stdout", log),
        stderr=options.pop("stderr", log),
        start_new_session=True,
        preexec_fn=_tied_to(os.getpid(), dies_by=dies_by),
        **who,
        **options,
    )


def _tied_to(parent: int, *, dies_by: int | None) -> Callable[[], None]:
    def tie() -> None:
        # Runs after setuid: changing user clears the setting (prctl(2)).
        if dies_by is None:
            return
        _libc.prctl(_PR_SET_PDEATHSIG, dies_by, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before the line above

    return tie


def _poll(handle: int, *, seconds: float) -> list[tuple[int, int]]:
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return poller.poll(seconds * 1000)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
