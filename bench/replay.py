"""An API server that plays back recorded events of pods at a given rate, to whoever watches. Nothing else is there.

Before `play` watchers get each pod as it was first seen. Events go out in an open loop, each at its moment; a watch that ends is
continued from its version, as with a real server.
"""

import asyncio
import json
import threading
import time
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from jobs.clusters.kubernetes.watch.reflector import INITIAL_END


@dataclass(frozen=True)
class ReplayedEvent:
    version: int
    line: bytes


class Replay:
    def __init__(self, lines: list[bytes], rate: float):
        self.rate, self.events = rate, [_event(line) for line in lines]
        self.first = _first(self.events)
        self.began = 0.0  # on the monotonic clock; 0 before `play`

    def __enter__(self) -> "Replay":
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def play(self) -> None:
        self.began = time.monotonic()

    @property
    def seconds(self) -> float:
        return len(self.events) / self.rate

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/{namespace}/{kind}", self._watch)
        app.router.add_get("/{rest:.*}", _refuse)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        """End the watches too: whoever reads them goes on until it is ended itself."""
        await self._runner.cleanup()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        kind = request.match_info["kind"]
        if kind not in ("pods", "services") or "watch" not in request.query:
            return await _refuse(request)
        response = web.StreamResponse()
        await response.prepare(request)
        place = 0
        if "sendInitialEvents" in request.query:
            await response.write(b"".join(self.first if kind == "pods" else []) + _bookmark(1, is_end=True))
        else:
            place = self.after(int(request.query["resourceVersion"]))
        end = time.monotonic() + float(request.query["timeoutSeconds"])
        while (now := time.monotonic()) < end:
            due = int((now - self.began) * self.rate) if self.began and kind == "pods" else 0
            if due > place:
                await response.write(b"".join(one.line for one in self.events[place:due]))
                place = min(due, len(self.events))
            await asyncio.sleep(0.01)
        await response.write(_bookmark(self.events[place - 1].version if place else 1))
        return response

    def after(self, version: int) -> int:
        """Return the place of the first event after this version."""
        return next((number for number, one in enumerate(self.events) if one.version > version), len(self.events))


async def _refuse(request: web.Request) -> web.Response:
    return web.json_response({"message": "not here"}, status=403)


def _event(line: bytes) -> ReplayedEvent:
    return ReplayedEvent(int(json.loads(line)["object"]["metadata"]["resourceVersion"]), line + b"\n")


def _first(events: list[ReplayedEvent]) -> list[bytes]:
    """Each pod at its first event, without what that event changed."""
    found: dict[str, bytes] = {}
    for one in events:
        pod: dict[str, Any] = json.loads(one.line)["object"]
        if pod["metadata"]["name"] not in found:
            pod["status"]["conditions"], pod["metadata"]["resourceVersion"] = [], "1"
            found[pod["metadata"]["name"]] = json.dumps({"type": "ADDED", "object": pod}).encode() + b"\n"
    return list(found.values())


def _bookmark(version: int, *, is_end: bool = False) -> bytes:
    notes = {"annotations": {INITIAL_END: "true"}} if is_end else {}
    return (
        json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version), **notes}}}).encode()
        + b"\n"
    )
