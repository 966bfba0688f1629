"""Fetch the workspace in a thread of its own, so that a stop takes effect while a server does not answer."""

from __future__ import annotations

import random
import threading
from typing import Callable

from ..control import Closed, ControlPlane, Unreachable
from ..state import Spec, StateFolder
from ..wire.pack import Damaged
from . import workspace

LONGEST_WAIT_SECONDS = 5.0
DAMAGED_TRIES = 3  # a file that is wrong every time is wrong where it is stored


class Fetching(threading.Thread):
    """Retry forever while the control plane cannot be reached. `failure` is empty on success."""

    def __init__(self, folder: StateFolder, *, spec: Spec, wake: Callable[[], None]) -> None:
        super().__init__(name="fetching", daemon=True)
        self._folder, self._spec, self._wake = folder, spec, wake
        self._control = ControlPlane(folder, spec=spec)
        self._cancelled = threading.Event()
        self._last_error = ""
        self.failure = ""
        self.is_over = False

    def cancel(self) -> None:
        """Stop fetching; joins a finished fetch, since a process forks safely only while it has one thread."""
        self._cancelled.set()
        if self.is_over:
            self.join()

    @property
    def was_answered(self) -> bool:
        return self._control.was_answered

    def give_up(self) -> str:
        """Stop trying; return a message that explains why there is no code."""
        self.cancel()
        why = f": {self._last_error}" if self._last_error else ""
        return f"the workspace cannot be fetched: no answer from {self._control.address()}{why}"

    def run(self) -> None:
        try:
            self._try_until_done()
        except Closed:
            self.failure = "the attempt is closed"
        except workspace.Cancelled:
            self.failure = "stopped while the code was fetched"
        except workspace.LostFile as error:
            self.failure = f"the workspace cannot be fetched: {error}"
        except workspace.Unsafe as error:
            self.failure = f"the workspace is not safe: {error}"
        except (OSError, ValueError) as error:
            self.failure = f"the workspace cannot be unpacked: {error}"
        finally:
            self.is_over = True
            self._wake()

    def _try_until_done(self) -> None:
        wait, damaged = 0.25, 0
        while not self._cancelled.is_set():
            try:
                return self._fetch()
            except Damaged as error:
                damaged += 1
                if damaged == DAMAGED_TRIES:
                    raise workspace.LostFile(f"{error}, {damaged} times") from error
                self._folder.trouble(f"no workspace yet: {error}")
            except Unreachable as error:
                self._last_error = str(error)[:300]
                self._folder.trouble(f"no workspace yet: {error}")
            self._cancelled.wait(wait * random.uniform(0.5, 1.0))
            wait = min(LONGEST_WAIT_SECONDS, wait * 2)
        return None

    def _fetch(self) -> None:
        is_cancelled = self._cancelled.is_set
        workspace.fetch(self._folder, spec=self._spec, control=self._control, is_cancelled=is_cancelled)
