"""Ctrl-C interrupts the waiting main thread, not the reading thread, which may hold a lock that would stay locked."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
from muster.client import Client
from muster.commands.interruptible import AHEAD, interruptible, run_interruptibly

from tests.process.client.fake import TOKEN, FakeMuster
from tests.support.patience import PATIENCE_SECONDS


def test_items_from_another_thread_keep_their_order() -> None:
    read = [(number, threading.current_thread()) for number in interruptible(range(3 * AHEAD))]
    threads = list(interruptible(threading.current_thread() for _ in range(3)))

    assert [number for number, _ in read] == list(range(3 * AHEAD))
    assert threading.main_thread() not in threads
    assert all(thread.daemon for thread in threads), "one that is left behind must not hold up the end"


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_an_error_is_raised_after_the_items_read_before_it(error: BaseException) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise error

    items = interruptible(broken())
    assert next(items) == 1
    with pytest.raises(type(error)):
        next(items)


def test_the_reader_does_not_run_far_ahead_of_the_consumer() -> None:
    read: list[int] = []
    may_end = threading.Event()

    def source() -> Iterator[int]:
        for number in range(100 * AHEAD):
            read.append(number)
            yield number
        may_end.set()

    items = interruptible(source())
    assert next(items) == 0
    assert not may_end.wait(0.2)
    assert len(read) <= AHEAD + 2
    assert len(list(items)) == 100 * AHEAD - 1


def test_a_call_runs_in_another_thread() -> None:
    assert run_interruptibly(threading.current_thread) is not threading.current_thread()


def test_leaving_by_an_interrupt_waits_for_no_lock(muster: FakeMuster) -> None:
    """As if the interrupt had come while the HTTP library held the lock of its connections."""

    def leave() -> None:
        with contextlib.suppress(KeyboardInterrupt), Client(muster.url, TOKEN) as client:
            client.me()
            client._core._port.http._transport._pool._optional_thread_lock.__enter__()
            raise KeyboardInterrupt

    leaving = threading.Thread(target=leave, daemon=True)
    leaving.start()
    leaving.join(PATIENCE_SECONDS)
    assert not leaving.is_alive()
