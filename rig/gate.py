"""A proxy in front of the API server that loses, refuses and cuts requests on demand. All else passes unchanged.

It uses plain HTTP towards Muster and TLS towards the server, and passes the caller's own token on.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from .elsewhere import Elsewhere
from .plane import ControlPlane

PASSED_ON = ("Authorization", "Content-Type", "Accept")


@dataclass
class GateFault:
    """`when` selects requests; `answer` is (status, Retry-After), None loses the answer after the server acted."""

    when: Callable[[str, str], bool]
    answer: tuple[int, str] | None
    times: int
    words: str = ""


@dataclass
class Gate:
    plane: ControlPlane | Elsewhere
    troubles: list[GateFault] = field(default_factory=list)
    cut_watches_after: float | None = None
    held: set[str] = field(default_factory=set)  # kinds whose watches stay open but deliver nothing
    seen: Counter[str] = field(default_factory=Counter)  # "POST pods" and the like
    is_open: bool = True  # closed: connections are cut without an answer

    def __enter__(self) -> "Gate":
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._do(self._start())
        return self

    def __exit__(self, *error: object) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def kubeconfig(self, source: Path) -> Path:
        """Return a kubeconfig of the same account through this gate."""
        path = source.with_name(f"{source.stem}-gate-{self.port}.kubeconfig")
        path.write_text(source.read_text().replace(self.plane.url, f"http://127.0.0.1:{self.port}"))
        return path

    def refuse(self, status: int, *, verb: str, kind: str, times: int, retry_after: str = "", words: str = "") -> None:
        self.troubles.append(GateFault(_are(verb, kind), (status, retry_after), times, words))

    def lose(self, *, verb: str, kind: str, times: int) -> None:
        """Lose answers: the server acts, but the caller gets none."""
        self.troubles.append(GateFault(_are(verb, kind), None, times))

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self.plane.tls(), limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        await self._runner.cleanup()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._session.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        kind = _kind(request.path)
        is_watch = "watch" in request.query
        self.seen[f"{'WATCH' if is_watch else request.method} {kind}"] += 1
        if not self.is_open:
            raise _cut(request)
        trouble = self._trouble(request.method, kind)
        if trouble is not None and trouble.answer is not None:
            status, after = trouble.answer
            headers = {"Retry-After": after} if after else {}
            message = trouble.words or f"the gate says {status}"
            return web.json_response({"message": message}, status=status, headers=headers)
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        url = f"{self.plane.url}{request.path_qs}"
        try:
            async with self._session.request(request.method, url, data=await request.read(), headers=headers) as answer:
                if trouble is not None:
                    await answer.read()
                    raise _cut(request)
                return await self._hand_back(request, answer, is_watch=is_watch)
        except aiohttp.ClientError:
            raise _cut(request) from None

    async def _hand_back(
        self, request: web.Request, answer: aiohttp.ClientResponse, *, is_watch: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            async with asyncio.timeout(self.cut_watches_after if is_watch else None):
                async for piece in answer.content.iter_any():
                    while is_watch and _kind(request.path) in self.held:
                        await asyncio.sleep(0.05)
                    await response.write(piece)
        except TimeoutError:
            raise _cut(request) from None
        return response

    def _trouble(self, verb: str, kind: str) -> GateFault | None:
        found = next((one for one in self.troubles if one.times > 0 and one.when(verb, kind)), None)
        if found is not None:
            found.times -= 1
        return found


def _are(verb: str, kind: str) -> Callable[[str, str], bool]:
    return lambda asked, what: (asked, what) == (verb, kind)


def _kind(path: str) -> str:
    """Return the resource kind: pods for /api/v1/namespaces/n/pods/x."""
    parts = path.strip("/").split("/")
    return parts[4] if len(parts) > 4 else parts[-1]


def _cut(request: web.Request) -> ConnectionResetError:
    if request.transport is not None:
        request.transport.abort()
    return ConnectionResetError("cut by the gate")
