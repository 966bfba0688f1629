"""List a job's checkpoints: what is in its folder for them, how large it is, and when it was last written.

In a thread of its own, because a file system that does not answer must not keep anything else from being sent, nor the
replica from ending. One replica of a job lists them: its folder is the same for all.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .outbox import Outbox

FIRST_SECONDS, EVERY_SECONDS = 5.0, 60.0
REPEAT_SECONDS = 600.0  # after which also what has not changed is sent: a listing may have been lost
LOOK_SECONDS = 20.0  # of one look, on a file system that answers slowly; what is left keeps the size that it had
LAST_SECONDS = 3.0  # that the end of a replica waits for a last look
MOST = 1000  # checkpoints in a listing
MOST_NAMES = 10_000  # of the folder that are read
MOST_FILES = 5_000  # of one checkpoint that are counted; the size of one with more is not known
MOST_DEPTH = 8
MOST_BYTES, MOST_TIME = 2**53, 2**35  # that the control plane accepts
SETTLED_SECONDS = 600.0  # a checkpoint that was last written so long ago is not counted again

# Names of unfinished files and folders, of shells, of transformers (tmp-checkpoint-500) and of orbax.
_TEMPORARY = re.compile(
    r"\A\.|~\Z|\Atmp[a-z0-9_]{8}\Z|(?:\A|[._-])tmp(?:[._-]|[0-9]*\Z)|\.(?:partial|part|incomplete|inprogress)\Z", re.I
)
# step-100, step=100, global_step100 (DeepSpeed), epoch=3-step=1200.ckpt (Lightning), model_step_100.pt
_STEP = re.compile(r"(?:\A|[^a-z])(?:global_?)?steps?[-_=]?([0-9]{1,15})(?![a-z0-9])(?!\.[0-9])", re.I)
# checkpoint-500 (transformers), ckpt_100.pt, iter_0000100 (Megatron), ep0-ba100-rank0.pt (Composer). One with two
# numbers does not say which of them is the step: checkpoint_1_500.pt (fairseq) begins with the epoch.
_OTHER = re.compile(
    r"(?:\A|[^a-z])(?:checkpoint|ckpt|iter|iteration|ba)[-_=]?([0-9]{1,15})(?![a-z0-9])(?![-_.][0-9])", re.I
)
_PLAIN = re.compile(r"([0-9]{1,15})(?:\.[a-z][a-z0-9]*)?\Z", re.I)  # 100, 100.pt


class Checkpoint(NamedTuple):
    name: str
    step: Optional[int]
    size: Optional[int]  # bytes; None: not known
    written_at: int  # seconds since the epoch


class _Counted(NamedTuple):
    size: Optional[int]
    written_at: int
    key: Tuple[int, int]  # inode and time of change of the entry itself: another one of that name is counted anew
    is_whole: bool = True  # False: the look's time was over before


class Checkpoints(threading.Thread):
    def __init__(
        self, folder: str, *, outbox: Outbox, trouble: Callable[[str], None], may_have_some: bool = False
    ) -> None:
        """`may_have_some`: earlier attempts may have sent a listing, so an empty one says something."""
        super().__init__(name="checkpoints", daemon=True)
        self._folder = folder
        self._outbox, self._trouble = outbox, trouble
        self._over = threading.Event()
        self._until = 0.0  # monotonic; when the present look ends
        self._counted: Dict[str, _Counted] = {}
        self._sent: Optional[List[Checkpoint]] = None if may_have_some else []
        self._sent_at = 0.0  # monotonic
        self._complaint = ""

    def finish(self) -> None:
        """Ask for a last look, which the caller waits for with `join(LAST_SECONDS)`."""
        self._over.set()
        self._until = min(self._until, time.monotonic() + 0.5)

    def run(self) -> None:
        wait = FIRST_SECONDS
        while not self._over.wait(wait):
            wait = EVERY_SECONDS
            self._look(LOOK_SECONDS)
        self._look(LAST_SECONDS / 2)

    def _look(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        try:
            found = self._listed()
        except OSError as error:
            if str(error) != self._complaint:  # once, and not every minute
                self._complaint = str(error)
                self._trouble(f"the checkpoints cannot be listed: {error}")
            return
        is_old = self._sent_at and time.monotonic() - self._sent_at > REPEAT_SECONDS
        if found != self._sent or is_old:
            self._sent, self._sent_at = found, time.monotonic()
            listed = [
                {"name": one.name, "step": one.step, "bytes": one.size, "written_at": one.written_at} for one in found
            ]
            self._outbox.newest("checkpoints", at=time.time(), checkpoints=listed)

    def _listed(self) -> List[Checkpoint]:
        found, counted = [], {}
        for name in names_in(self._folder):
            one = self._count(name)
            if one is not None:
                counted[name] = one
                found.append(Checkpoint(name, step_of(name), one.size, one.written_at))
        self._counted = counted
        return found

    def _count(self, name: str) -> Optional[_Counted]:
        """Return size and last write; None for what is gone meanwhile, or a link: it names another entry."""
        path, before = os.path.join(self._folder, name), self._counted.get(name)
        try:
            about = os.lstat(path)
        except OSError:
            return None
        if not (stat.S_ISDIR(about.st_mode) or stat.S_ISREG(about.st_mode)):
            return None
        key = about.st_ino, about.st_mtime_ns
        before = before if before is not None and before.key == key else None
        if before is not None and before.is_whole and time.time() - before.written_at > SETTLED_SECONDS:
            return before
        if stat.S_ISREG(about.st_mode):
            return _Counted(_bounded(about.st_size), _bounded(about.st_mtime, MOST_TIME), key)
        if time.monotonic() < self._until:
            return self._counted_below(path, about.st_mtime, key)
        return before or _Counted(None, _bounded(about.st_mtime, MOST_TIME), key, is_whole=False)

    def _counted_below(self, path: str, written_at: float, key: Tuple[int, int]) -> _Counted:
        total, newest = 0, written_at
        for number, about in enumerate(_files(path)):
            is_late = time.monotonic() >= self._until
            if number >= MOST_FILES or is_late:
                return _Counted(None, _bounded(newest, MOST_TIME), key, is_whole=not is_late)
            newest = max(newest, about.st_mtime)
            total += about.st_size
        return _Counted(_bounded(total), _bounded(newest, MOST_TIME), key)


def step_of(name: str) -> Optional[int]:
    """Return the step that a checkpoint's name says, None if it says none, as `last.ckpt` does."""
    match = _STEP.search(name) or _OTHER.search(name) or _PLAIN.match(name)
    return int(match.group(1)) if match and not is_temporary(name) else None


def is_temporary(name: str) -> bool:
    """Return whether a name is that of something which is still being written, or is hidden."""
    return _TEMPORARY.search(name) is not None


def names_in(folder: str) -> List[str]:
    """Return the names that may be checkpoints, by their steps; the MOST with the highest. Raises OSError."""
    names: List[str] = []
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= MOST_NAMES:
                    break
                if not is_temporary(entry.name):
                    names.append(entry.name)
    except FileNotFoundError:  # made by the job with its first checkpoint
        return []
    names.sort(key=lambda name: (-1 if (step := step_of(name)) is None else step, name))
    return names[-MOST:]


def _bounded(number: float, most: int = MOST_BYTES) -> int:
    return min(max(0, int(number)), most)


def _files(top: str) -> Iterator[os.stat_result]:
    """Yield what is below a folder, without links; what cannot be read is left out."""
    folders = [(top, 0)]
    while folders:
        folder, depth = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MOST_DEPTH:
                            folders.append((entry.path, depth + 1))
                    elif not entry.is_symlink():
                        yield entry.stat(follow_symlinks=False)
        except OSError:
            continue
