"""Ringing a doorbell never delays or fails the caller, whatever state Redis is in."""

import json
import os
import signal
import threading
import time

import pytest
from redis import Redis

from common.signals import doorbell
from tests.support import servers
from tests.support.patience import PATIENCE_SECONDS


@pytest.fixture
def redis_pid() -> int:
    (_, running), *_ = servers.reserved
    return running.running["redis"].pid


def test_a_hint_reaches_a_subscriber(settings, transactional_db):
    listener = Redis.from_url(settings.REDIS_URL).pubsub()
    listener.subscribe(doorbell.CHANNEL)
    listener.get_message(timeout=PATIENCE_SECONDS)
    doorbell.hint(job=42, team=7, what="ranks")
    heard = iter(lambda: listener.get_message(timeout=PATIENCE_SECONDS)["data"], None)
    hints = (json.loads(data) for data in heard)  # an earlier test may have sent hints too
    assert next(hint for hint in hints if hint["job"] == 42) == {"job": 42, "team": 7, "what": "ranks"}
    listener.close()


def test_ringing_returns_while_redis_is_stopped_and_is_delivered_afterwards(settings, transactional_db, redis_pid):
    listener = Redis.from_url(settings.REDIS_URL).pubsub()
    listener.subscribe(doorbell.CHANNEL)
    listener.get_message(timeout=PATIENCE_SECONDS)
    os.kill(redis_pid, signal.SIGSTOP)
    waker = threading.Timer(
        PATIENCE_SECONDS, os.kill, (redis_pid, signal.SIGCONT)
    )  # if ringing hangs, this test still ends
    waker.start()
    try:
        for job in range(50):
            doorbell.hint(job=job, team=1, what="state")
            doorbell.poke("jobs.schedule")
        assert waker.is_alive(), "ringing waited for Redis"
    finally:
        os.kill(redis_pid, signal.SIGCONT)
        waker.cancel()
    end = time.monotonic() + PATIENCE_SECONDS
    while not (listener.get_message(timeout=1) or {}).get("data"):
        assert time.monotonic() < end
    listener.close()


def test_equal_rings_are_queued_only_once():
    bell, said, gate = doorbell.Bell(), [], threading.Event()
    bell.ring("first", gate.wait)
    for _ in range(10):
        bell.ring("again", lambda: said.append(1))
    gate.set()
    done = threading.Event()
    bell.ring("last", done.set)
    assert done.wait(PATIENCE_SECONDS)
    assert said == [1]


def test_a_failing_ring_does_not_stop_the_bell(monkeypatch):
    monkeypatch.setattr(doorbell, "REST_SECONDS", 0)
    bell, done = doorbell.Bell(), threading.Event()
    bell.ring("bad", lambda: 1 / 0)
    bell.ring("good", done.set)
    assert done.wait(PATIENCE_SECONDS)


def test_pages_are_told_that_hints_were_lost_once_redis_answers_again(settings, transactional_db, monkeypatch):
    listener = Redis.from_url(settings.REDIS_URL).pubsub()
    listener.subscribe(doorbell.CHANNEL)
    listener.get_message(timeout=PATIENCE_SECONDS)
    monkeypatch.setattr(doorbell, "REST_SECONDS", 0.01)
    away = iter(range(3))

    def client() -> Redis:
        if next(away, None) is not None:
            raise ConnectionError("away")
        return Redis.from_url(settings.REDIS_URL)

    monkeypatch.setattr(doorbell, "redis_client", client)
    doorbell.hint(job=1, team=1, what="never sent")
    heard = iter(lambda: listener.get_message(timeout=PATIENCE_SECONDS)["data"], None)
    assert next(text for text in heard if b"lost" in text or b"never" in text) == doorbell.LOST.encode()
    listener.close()
