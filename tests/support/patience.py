"""How long tests wait for an event that must come. It only turns hanging into a failure; no assertion depends on it."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 120.0


def until(is_so: Callable[[], Any], says: str | Callable[[], Any] = "", *, seconds: float = 300.0) -> Any:
    """Poll until the value is true, and return it. `says` is what a failure says, or returns it then."""
    end = time.monotonic() + seconds
    while not (value := is_so()):
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {says() if callable(says) else says or is_so}"
        time.sleep(0.05)
    return value
