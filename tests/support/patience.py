"""How long tests wait for an event that must come. It only turns hanging into a failure; no assertion depends on it."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 120.0


def until(what: Callable[[], Any], *, seconds: float = 300.0, says: Callable[[], Any] = lambda: "") -> Any:
    """Poll until the value is true, and return it. The failure says what `says` returns then."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, f"it did not come to that {says()}"
        time.sleep(0.05)
    return found
