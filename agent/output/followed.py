"""Log files that grow while the replica runs, as a pipe: a launcher may give its processes files in place of its own output.

A thread of its own looks at the files; the agent reads the pipe like any other output.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Callable, Dict, List, Optional, Tuple

LOOK_SECONDS = 0.2
READ_BYTES = 1 << 18
LONGEST_LINE = 1 << 20  # a longer one is passed on in parts


class Followed(threading.Thread):
    """Passes on whole lines, so that those of several files never mix. `find` returns the files there are now."""

    def __init__(self, find: Callable[[], List[str]], *, is_noise: Callable[[bytes], bool]) -> None:
        super().__init__(name="followed", daemon=True)
        self._find, self._is_noise = find, is_noise
        self.output, self._pipe = os.pipe()
        self._files: Dict[str, _File] = {}
        self._over = threading.Event()

    def run(self) -> None:
        try:
            while not self._over.wait(LOOK_SECONDS):
                self.pass_on()
            self.pass_on(is_last=True)
        except OSError:  # the agent no longer reads
            pass
        finally:
            os.close(self._pipe)
            for file in self._files.values():
                file.close()

    def finish(self) -> None:
        """Pass on what is left, then close the pipe. Nothing writes to the files any longer."""
        self._over.set()

    def pass_on(self, *, is_last: bool = False) -> None:
        """Look at the files once, in this thread."""
        for path in self._find():
            if path not in self._files:
                self._files[path] = _File(path)
        for file in self._files.values():
            while True:
                lines, is_more = file.read(is_last=is_last)
                for line in lines:
                    if not self._is_noise(line):
                        _write(self._pipe, line)
                if not is_more:
                    break


class _File:
    """One file by its name; where that names a new file (it was rotated), the old one is read to its end first."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: Optional[int] = None
        self._half = b""

    def read(self, *, is_last: bool) -> Tuple[List[bytes], bool]:
        """Return new whole lines with their newlines, and whether there may be more at once."""
        if self._fd is None:
            with contextlib.suppress(OSError):
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        piece = b"" if self._fd is None else os.read(self._fd, READ_BYTES)
        was_rotated = not piece and self._was_rotated()
        is_over = was_rotated or (not piece and is_last)
        text = self._half + piece
        lines = _lines(text)
        self._half = b""
        if lines and not lines[-1].endswith(b"\n"):
            if is_over or len(lines[-1]) > LONGEST_LINE:
                lines[-1] += b"\n"
            else:
                self._half = lines.pop()
        if was_rotated:
            self.close()
        return lines, bool(piece) or was_rotated

    def _was_rotated(self) -> bool:
        if self._fd is None:
            return False
        try:
            return os.stat(self._path).st_ino != os.fstat(self._fd).st_ino
        except OSError:
            return False

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _lines(text: bytes) -> List[bytes]:
    """Split at newlines alone: a progress bar's carriage returns stay in its line."""
    parts = text.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _write(fd: int, line: bytes) -> None:
    view = memoryview(line)
    while view:
        view = view[os.write(fd, view) :]
