"""A request on a connection that was used before, beside the same request on a new one.

The kept one saves the handshake, so it can only be quicker. Where a server leaves Nagle's algorithm on, an answer of two
segments waits for the reader's delayed acknowledgement instead: 40 ms on every kept connection, and none on a new one,
whose first acknowledgements come at once. Asked in turns, so that a busy second meets both alike.
"""

import http.client
import statistics
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from .figures import Figure, Result
from .rig import Rig, rig

REQUESTS = 200
FIRST = 20  # a new connection's quick acknowledgements, and caches that stay full all day
PATHS = {"healthz": "/healthz", "api": "/api/v1/me"}


def run() -> Result:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, rig(Path(folder) / "installation") as muster:
        taken = {name: measured(muster, path) for name, path in PATHS.items()}
    figures = [
        Figure(
            f"{name}_kept_median",
            1000 * statistics.median(kept),
            "ms",
            1.5,
            reference=1000 * statistics.median(fresh),
            bound_on="ratio",
        )
        for name, (kept, fresh) in taken.items()
    ]
    notes = {f"{name}_kept_p99_ms": round(1000 * _p99(kept), 1) for name, (kept, _) in taken.items()}
    return Result("keepalive", figures, {"requests": REQUESTS, **notes})


def measured(muster: Rig, path: str) -> tuple[list[float], list[float]]:
    """Seconds of each request on the kept connection, and on one of its own."""
    kept, fresh = _connection(muster), []
    on_kept: list[float] = []
    for _ in range(FIRST + REQUESTS):
        on_kept.append(_asked(kept, path, muster.token))
        one = _connection(muster)
        fresh.append(_asked(one, path, muster.token))
        one.close()
    kept.close()
    return on_kept[FIRST:], fresh[FIRST:]


def _connection(muster: Rig) -> http.client.HTTPConnection:
    parts = urlsplit(muster.url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)


def _asked(connection: http.client.HTTPConnection, path: str, token: str) -> float:
    """With the handshake, where there is one."""
    began = time.perf_counter()
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path} was answered with {answer.status}")
    return time.perf_counter() - began


def _p99(taken: list[float]) -> float:
    return statistics.quantiles(taken, n=100)[-1]
