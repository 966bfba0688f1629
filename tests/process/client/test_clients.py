"""Both clients are one core over two ports: what holds for the pair, and what only one of the ports can break."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import muster.client
import pytest
from muster.client import AsyncClient, Client, Core
from muster.errors import NotFound, TimedOut, Unreachable
from muster.http.blocking import run, stepped
from muster.http.port import AsyncPort, BlockingPort
from muster.http.wire import Wire

from tests.process.client.fake import TOKEN, FakeMuster
from tests.process.client.test_operations import LISTS, USES, with_a_needle
from tests.support.patience import PATIENCE_SECONDS

PACKAGE = Path(muster.client.__file__).parent
NAMES = sorted(name for name in dir(Client) if not name.startswith("_"))


def test_both_clients_have_the_same_methods() -> None:
    assert sorted(name for name in dir(AsyncClient) if not name.startswith("_")) == NAMES


def test_both_show_the_same_arguments_and_docstring() -> None:
    """`help(client.plan)` and editors show the parameters of the operation, not of what calls it."""
    for name in NAMES:
        ordinary, awaited = (getattr(kind, name) for kind in (Client, AsyncClient))
        shown, meant = inspect.signature(ordinary), inspect.signature(awaited)
        assert (list(shown.parameters.values()), ordinary.__doc__) == (list(meant.parameters.values()), awaited.__doc__)
        is_list = meant.return_annotation.startswith("AsyncIterator[")
        assert inspect.iscoroutinefunction(ordinary) is False, name
        assert inspect.iscoroutinefunction(awaited) is not is_list, name
        assert shown.return_annotation == meant.return_annotation.removeprefix("Async"), name
        assert (ordinary.__doc__ or "").strip(), name


class Suspended:
    def __init__(self) -> None:
        self.has_ended = False

    async def value(self) -> int:
        try:
            await asyncio.sleep(0)
            return 1
        finally:
            self.has_ended = True

    async def values(self) -> AsyncIterator[int]:
        yield 0
        yield await self.value()


def test_a_core_that_suspends_is_an_error_of_the_synchronous_side() -> None:
    core = Suspended()
    with pytest.raises(RuntimeError, match="a synchronous client cannot wait for"):
        run(core.value())
    assert core.has_ended

    core = Suspended()
    items = stepped(core.values())
    assert next(items) == 0
    with pytest.raises(RuntimeError, match="a synchronous client cannot wait for"):
        next(items)
    assert core.has_ended


def test_no_operation_suspends_on_the_synchronous_side(client: Client, logged_in: FakeMuster) -> None:
    """Each is driven by hand: one step must end it. Within a running loop, where a suspension would go unnoticed."""

    async def all_of_them() -> None:
        for name, (args, options, is_right) in USES.items():
            logged_in.__init__()  # type: ignore[misc]  # as new, so that every deletion works
            with_a_needle(logged_in)
            told = getattr(client, name)(*args, **options)
            assert is_right(list(told) if name in LISTS else told), name

    asyncio.run(all_of_them())


def test_only_the_port_knows_of_an_event_loop() -> None:
    def imported(path: Path) -> set[str]:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        plain = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
        return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}

    loops = {"asyncio", "anyio", "sniffio", "trio"}
    assert [path.name for path in PACKAGE.rglob("*.py") if imported(path) & loops] == ["port.py"]


def test_an_iterator_outlives_the_loop_that_ran_when_it_began(client: Client, logged_in: FakeMuster) -> None:
    """A loop closes the asynchronous generators that began under it when it ends; those of the core must not be."""
    number = logged_in.add_job(phase="succeeded")
    for at in range(9):
        logged_in.say(number, str(at))
    logged_in.page_lines = 2

    async def begun() -> tuple[list[str], Iterator[Any]]:
        lines = client.logs(number, follow=True)
        return [next(lines).text for _ in range(3)], lines

    first, lines = asyncio.run(begun())
    assert first + [line.text for line in lines] == [str(at) for at in range(9)]


def test_threads_may_share_a_client(client: Client, logged_in: FakeMuster) -> None:
    with_a_needle(logged_in)
    with ThreadPoolExecutor(8) as pool:
        lines = pool.map(lambda _: [line.text for line in client.logs(1)], range(24))

    assert list(lines) == [["hay", "hay", "a needle"]] * 24


class Watched(BlockingPort):
    """Counts the responses that were not released."""

    held = 0

    async def send(self, request: dict[str, Any], *, is_stream: bool = False) -> httpx.Response:
        reply = await super().send(request, is_stream=is_stream)
        self.held += is_stream
        return reply

    async def release(self, reply: httpx.Response) -> None:
        self.held -= 1
        await super().release(reply)


class AsyncWatched(AsyncPort):
    held = 0

    async def send(self, request: dict[str, Any], *, is_stream: bool = False) -> httpx.Response:
        reply = await super().send(request, is_stream=is_stream)
        self.held += is_stream
        return reply

    async def release(self, reply: httpx.Response) -> None:
        self.held -= 1
        await super().release(reply)


async def _pause(seconds: float) -> None:
    await asyncio.sleep(0)


def following(fake: FakeMuster) -> int:
    number = fake.add_job(phase="succeeded")
    for at in range(5):
        fake.say(number, str(at))
    return number


def test_an_abandoned_iterator_ends_its_connection_at_once(logged_in: FakeMuster) -> None:
    number, wire = following(logged_in), Wire(logged_in.url, TOKEN)
    port = Watched(wire.settings(), sleep=lambda seconds: None)
    core = Core(wire, port=port, on_retry=lambda retry: None)
    for begin in (core.logs, core.log_pages):
        for abandon in ("close", "drop"):
            lines: Any = stepped(begin(number, follow=True))
            next(lines)
            assert port.held == 1
            if abandon == "close":
                lines.close()
            del lines
            assert port.held == 0
    run(core.close())


def test_an_abandoned_asynchronous_iterator_ends_its_connection_when_it_is_closed(logged_in: FakeMuster) -> None:
    number, wire = following(logged_in), Wire(logged_in.url, TOKEN)

    async def whole() -> None:
        port = AsyncWatched(wire.settings(), sleep=_pause)
        core = Core(wire, port=port, on_retry=lambda retry: None)
        lines: Any = core.logs(number, follow=True)
        await lines.__anext__()
        assert port.held == 1
        await lines.aclose()
        assert port.held == 0
        await core.close()

    asyncio.run(whole())


def test_an_interrupt_leaves_a_usable_client(logged_in: FakeMuster) -> None:
    interrupts = [KeyboardInterrupt()]

    def pause(seconds: float) -> None:
        if interrupts:
            raise interrupts.pop()

    logged_in.faults = ["drop", "drop"]
    with Client(logged_in.url, TOKEN, sleep=pause) as client:
        with pytest.raises(KeyboardInterrupt):
            client.me()
        assert client.me().user == "ada"


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """A server that takes requests and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_both_clients_time_out() -> None:
    async def asked(url: str) -> None:
        async with AsyncClient(url, TOKEN, timeout_seconds=0.05, sleep=_pause) as client:
            await client.me()

    with silent() as url:
        with (
            Client(url, TOKEN, timeout_seconds=0.05, sleep=lambda seconds: None) as client,
            pytest.raises(TimedOut, match=r"did not answer within 0\.05 s"),
        ):
            client.me()
        with pytest.raises(TimedOut, match=r"did not answer within 0\.05 s"):
            asyncio.run(asked(url))


def test_a_cancelled_task_stops_waiting_and_leaves_a_usable_client(logged_in: FakeMuster) -> None:
    async def whole() -> str:
        async with AsyncClient(logged_in.url, TOKEN) as client:
            logged_in.faults = [(503, {}, {"Retry-After": "60"})]
            retrying = asyncio.create_task(client.me())
            while not logged_in.requests:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            await _cancelled(retrying)
            return (await client.me()).user

    assert asyncio.run(whole()) == "ada"


def test_a_task_may_be_cancelled_while_the_server_is_silent() -> None:
    async def whole(url: str) -> None:
        async with AsyncClient(url, TOKEN) as client:
            waiting = asyncio.create_task(client.wait(1))
            await asyncio.sleep(0.1)
            await _cancelled(waiting)

    with silent() as url:
        asyncio.run(whole(url))


async def _cancelled(task: asyncio.Task[Any]) -> None:
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < PATIENCE_SECONDS


def test_tasks_may_share_a_client(logged_in: FakeMuster) -> None:
    with_a_needle(logged_in)

    async def whole() -> list[list[str]]:
        async def read(client: AsyncClient) -> list[str]:
            return [line.text async for line in client.logs(1)]

        async with AsyncClient() as client:
            return await asyncio.gather(*[read(client) for _ in range(24)])

    assert asyncio.run(whole()) == [["hay", "hay", "a needle"]] * 24


def test_the_disk_is_read_in_another_thread_only_where_a_loop_would_wait() -> None:
    here = threading.get_ident()
    settings = Wire("http://127.0.0.1:1", TOKEN).settings()

    assert run(BlockingPort(settings, sleep=time.sleep).work(threading.get_ident)) == here
    assert asyncio.run(AsyncPort(settings, sleep=asyncio.sleep).work(threading.get_ident)) != here


def test_a_closed_client_sends_nothing_more(logged_in: FakeMuster) -> None:
    async def closed() -> None:
        async with AsyncClient() as client:
            await client.me()
        await client.me()

    with Client() as client:
        client.me()
    for ask in (client.me, lambda: asyncio.run(closed())):
        logged_in.requests.clear()
        with pytest.raises(RuntimeError, match="closed"):
            ask()
    assert len(logged_in.requests) == 1


def test_errors_of_an_iterator_come_at_its_first_step(client: Client) -> None:
    lines = client.logs(99)
    with pytest.raises(NotFound):
        next(lines)
    assert list(lines) == []
    with pytest.raises(TypeError, match="colour"):
        client.jobs(colour="red")  # type: ignore[call-arg]


def test_a_server_that_is_away_is_reported_by_both() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def asked() -> None:
        async with AsyncClient(url, TOKEN, sleep=_pause) as client:
            await client.me()

    with Client(url, TOKEN, sleep=lambda seconds: None) as client, pytest.raises(Unreachable, match="refused"):
        client.me()
    with pytest.raises(Unreachable, match="refused"):
        asyncio.run(asked())
