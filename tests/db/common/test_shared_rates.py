"""Processes share their rates through a real Redis, and none of them needs it: real processes, and clocks that stand."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from common.limits import shared_rates
from common.limits.rates import Buckets
from common.limits.shared_rates import CHANNEL, MOST_BYTES, MOST_KEYS, MOST_REQUESTS, pseudonym, read, written
from controlplane.edge import rates
from embedded.servers import Servers
from jobs.ingest import asgi
from tests.support.patience import PATIENCE_SECONDS, until

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 60
# Nothing refills while a test runs, so what is left depends on requests alone.
PROCESS = """
import json, os, sys, threading
import django; django.setup()
from common.limits import shared_rates
from common.limits.shared_rates import buckets, pseudonym
shared_rates.ANSWER_SECONDS = float(sys.argv[1])
buckets.clock = lambda: 0.0
def left(who):
    bucket = buckets.named.get(pseudonym(who))
    return None if bucket is None else bucket.left
def take(who, times, per_minute):
    return [buckets.take(who, per_minute=per_minute) for _ in range(times)]
def threads():
    return sorted(one.name for one in threading.enumerate() if one.name.startswith("rates"))
def fork():
    parent = os.fork()
    return os.waitpid(parent, 0) and os._exit(0) if parent else threads()
for line in iter(sys.stdin.readline, ""):
    name, *values = json.loads(line)
    print(json.dumps(globals()[name](*values)), flush=True)
"""
WITHIN = "rates are limited within this process only"
AGAIN = "rates are shared with the other processes again"


class Web:
    """A process that limits rates as a web process does, and does as it is told."""

    def __init__(self, redis_url: str, log: Path, answer_seconds: float):
        self.log = log
        environment = {**os.environ, "REDIS_URL": redis_url, "MUSTER_LOG_LEVEL": "INFO", "MUSTER_DB_POOL": "1"}
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROCESS, str(answer_seconds)],
                cwd=ROOT,
                env={**environment, "DJANGO_SETTINGS_MODULE": "controlplane.settings"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ask(self, *words: object):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def take(self, who: str, times: int = 1, per_minute: int = LIMIT) -> list[int]:
        return self.ask("take", who, times, per_minute)

    def left(self, who: str) -> float | None:
        return self.ask("left", who)

    def lines(self, text: str) -> int:
        return self.log.read_text().count(text)

    def changes(self) -> list[str]:
        """What its log tells of Redis, in order."""
        return re.findall(f"{WITHIN}|{AGAIN}", self.log.read_text())

    def end(self) -> None:
        self.process.stdin.close()  # it ends with its input, and so does its child
        self.process.wait(PATIENCE_SECONDS)
        self.process.stdout.close()


def until_they_hear_each_other(*webs: Web) -> None:
    for web in webs:
        web.take("first")  # threads begin with the first request
    for web in webs:
        until_heard(web, *(other for other in webs if other is not web))


turns = itertools.count()


def until_heard(sender: Web, *others: Web) -> None:
    """Wait until these processes hear of what another one takes."""

    def is_heard() -> bool:
        who = f"turn {next(turns)}"
        sender.take(who)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            if all(one.left(who) == LIMIT - 1 for one in others):
                return True
            time.sleep(0.02)
        return False

    until(is_heard)


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[Servers]:
    """A Redis of these tests' own, which they stop and kill."""
    with Servers(tmp_path_factory.mktemp("rates"), database_url="unused", is_temporary=True) as found:
        yield found


@pytest.fixture(scope="module")
def start(servers, tmp_path_factory) -> Iterator[Callable[..., Web]]:
    """Start processes. They wait for Redis with patience: what a slow machine did not send in time is not sent again."""
    folder, started = tmp_path_factory.mktemp("logs"), list[Web]()

    def one(answer_seconds: float = PATIENCE_SECONDS) -> Web:
        started.append(Web(servers.redis_url, folder / f"{len(started)}.log", answer_seconds))
        return started[-1]

    yield one
    for web in started:
        web.end()


@pytest.fixture(scope="module")
def pair(start) -> tuple[Web, Web]:
    return start(), start()


@pytest.fixture
def webs(pair) -> tuple[Web, Web]:
    until_they_hear_each_other(*pair)
    return pair


@pytest.fixture
def channel(servers) -> Iterator[Iterator[bytes]]:
    """What anybody at Redis can read: the messages from now on."""
    with Redis.from_url(servers.redis_url) as redis, redis.pubsub() as subscription:
        subscription.subscribe(CHANNEL)
        assert subscription.get_message(timeout=PATIENCE_SECONDS)["type"] == "subscribe"
        yield iter(lambda: subscription.get_message(timeout=PATIENCE_SECONDS)["data"], None)


class Hanging:
    """A Redis that accepts connections and answers nothing, until patience ends."""

    def __init__(self, pid: int):
        self.pid = pid
        self.end = threading.Timer(PATIENCE_SECONDS, os.kill, (pid, signal.SIGCONT))

    def __enter__(self) -> "Hanging":
        os.kill(self.pid, signal.SIGSTOP)
        self.end.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end.cancel()
        os.kill(self.pid, signal.SIGCONT)

    def is_over(self) -> bool:
        return not self.end.is_alive()


def test_pages_and_agents_are_limited_by_the_shared_buckets():
    assert rates.buckets is asgi.buckets is shared_rates.buckets


def test_what_one_process_let_through_the_other_refuses(webs):
    for number, (one, other) in enumerate((webs, webs[::-1])):
        who = f"user:{number}"
        assert one.take(who, LIMIT + 1) == [0] * LIMIT + [1]
        until(lambda who=who, other=other: other.left(who) == 0)
        assert other.take(who) == [1]
        assert other.take(f"{who} and another") == [0]


def test_what_both_took_counts_in_both(webs):
    one, other = webs
    one.take("both", 20)
    other.take("both", 30)
    until(lambda: one.left("both") == other.left("both") == LIMIT - 50)
    assert one.take("both", 11) == [0] * 10 + [1]


def test_threads_begin_with_the_first_request_that_counts(start):
    web = start()
    assert web.ask("threads") == []
    web.take("no limit", per_minute=0)
    assert web.ask("threads") == []
    web.take("a limit", 3)
    assert len(web.ask("threads")) == 2


def test_a_forked_process_shares_as_well(start, webs):
    child = start()
    child.take("before")
    until_heard(webs[0], child)  # its threads are at work
    assert child.ask("fork") == []
    assert child.take("of a child", LIMIT + 1) == [0] * LIMIT + [1]
    assert len(child.ask("threads")) == 2
    until_heard(child, webs[0])
    until_heard(webs[0], child)


def test_a_hanging_redis_delays_nothing_and_each_process_limits_by_itself(start, servers):
    webs = [start(shared_rates.ANSWER_SECONDS) for _ in range(2)]
    until_they_hear_each_other(*webs)
    before = [len(web.changes()) for web in webs]
    with Hanging(servers.running["redis"].pid) as hanging:
        late = start(shared_rates.ANSWER_SECONDS)
        for web in (*webs, late):
            assert web.take("meanwhile", LIMIT + 1) == [0] * LIMIT + [1]
        until(lambda: all(web.changes()[was:] for web, was in zip(webs, before, strict=True)))
        for web in webs:
            assert web.take("later", LIMIT + 1) == [0] * LIMIT + [1]
        assert not hanging.is_over(), "a request waited for Redis"
    until_they_hear_each_other(*webs, late)
    until(lambda: all(web.changes()[-1] == AGAIN for web in webs))
    assert all(no_line_is_repeated(web) for web in webs)


def test_rates_are_shared_again_once_a_killed_redis_is_back(webs, servers):
    one, other = webs
    before = [len(web.changes()) for web in webs]
    servers.running["redis"].kill()
    servers.running["redis"].wait()
    until(lambda: all(web.changes()[was:] for web, was in zip(webs, before, strict=True)))
    for web in webs:
        assert web.take("without", LIMIT + 1) == [0] * LIMIT + [1]
    (redis,) = servers.servers
    servers.running["redis"] = redis.spawn()
    redis.wait_ready(servers.running["redis"])
    until_they_hear_each_other(one, other)
    assert one.take("with", LIMIT + 1) == [0] * LIMIT + [1]
    until(lambda: other.left("with") == 0)
    assert all(no_line_is_repeated(web) for web in webs)


def no_line_is_repeated(web: Web) -> bool:
    return all(line != following for line, following in itertools.pairwise(web.changes()))


def test_messages_hold_no_address_and_no_user(webs, channel):
    one, other = webs
    one.take("login:192.0.2.7", 3)
    until(lambda: other.left("login:192.0.2.7") == LIMIT - 3)
    text = next(channel)
    while pseudonym("login:192.0.2.7").encode() not in text and b'"took"' in text:
        text = next(channel)
    assert b"192.0.2.7" not in text and b"login" not in text
    _, taken = read(text)
    assert all(len(name) == 32 and int(name, 16) for name in taken)


NAME = "0" * 32
HOSTILE = [
    b"", b"\xff\x00", b"no JSON", b"[" * 100_000, b"null", b"[]", b"{}", b'{"from": "x"}', b'{"from": 1, "took": {}}',
    b'{"from": "x", "took": []}', b"9" * 5000,
    *(
        json.dumps({"from": "x", "took": took}).encode()
        for took in (
            {NAME: 1}, {NAME: [1]}, {NAME: [1, 60, 1]}, {NAME: ["1", 60]}, {NAME: [True, 60]}, {NAME: [1.5, 60]},
            {NAME: [-1, 60]}, {NAME: [0, 60]}, {NAME: [1, 0]}, {NAME: [1, float("inf")]}, {NAME: [float("nan"), 1]},
            {NAME: [MOST_REQUESTS + 1, 60]}, {NAME: [1, 10**400]}, {"user:1": [1, 60]}, {NAME + "\n": [1, 60]},
            {NAME.replace("0", "A"): [1, 60]}, {NAME.replace("0", "٠"): [1, 60]}, {NAME: [1, 60], "": [1, 60]},
            {f"{number:032x}": [1, 60] for number in range(MOST_KEYS + 1)},
        )
    ),
    json.dumps({"from": "x" * MOST_BYTES, "took": {NAME: [1, 60]}}).encode(),
]  # fmt: skip


@pytest.mark.parametrize("data", [*HOSTILE, "a text", None], ids=lambda data: repr(data)[:60])
def test_nothing_but_a_message_is_read(data):
    with pytest.raises((ValueError, RecursionError)):
        read(data)


def test_hostile_messages_are_ignored_and_the_next_one_counts(webs, servers):
    one, other = webs
    one.take("untouched")
    until(lambda: other.left("untouched") == LIMIT - 1)
    with Redis.from_url(servers.redis_url) as redis:
        for data in HOSTILE:
            redis.publish(CHANNEL, data)
        good = {pseudonym("untouched"): (3, LIMIT)}
        redis.publish(CHANNEL, written("somebody", good))
    until(lambda: one.left("untouched") == other.left("untouched") == LIMIT - 4)
    assert one.lines("not a message of rates") == other.lines("not a message of rates") == 1


def test_the_worst_message_costs_a_key_a_minute(webs, servers):
    one, _ = webs
    one.take("victim")
    with Redis.from_url(servers.redis_url) as redis:
        redis.publish(CHANNEL, written("somebody", {pseudonym("victim"): (MOST_REQUESTS, MOST_REQUESTS)}))
    until(lambda: one.left("victim") == -LIMIT)
    assert one.take("victim") == [LIMIT + 1]


def test_a_message_has_room_for_the_busiest_keys():
    taken = {f"{number:032x}": (number, 6000) for number in range(1, MOST_KEYS + 2)}
    text = written("f" * 16, taken)
    assert len(text) <= MOST_BYTES / 2
    assert read(text) == ("f" * 16, {name: one for name, one in taken.items() if one[0] > 1})


def test_pseudonyms_differ_by_key_and_by_secret(settings):
    mine = pseudonym("login:192.0.2.1")
    assert mine == pseudonym("login:192.0.2.1") != pseudonym("login:192.0.2.2")
    settings.SECRET_KEY = "another"
    assert pseudonym("login:192.0.2.1") != mine


def test_a_process_without_threads_to_spare_still_limits(monkeypatch, caplog):
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    buckets = Buckets(clock=lambda: 0.0)
    shared_rates.Exchange(buckets)
    assert [buckets.take("a", per_minute=2) for _ in range(3)] == [0, 0, 30]
    assert [buckets.take("b", per_minute=2) for _ in range(3)] == [0, 0, 30]
    assert caplog.text.count(WITHIN) == 1
