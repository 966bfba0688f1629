"""Pauses between two readings of a watch: what comes meanwhile is read in one piece, and nobody who decides waits for it."""

import asyncio
import contextlib
import fcntl
import itertools
import socket
import ssl
import struct
import termios
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.clusters.kubernetes import client
from jobs.clusters.kubernetes.client import Api, split_lines
from jobs.clusters.kubernetes.options import Access
from jobs.clusters.kubernetes.watch_batching import MOST_BYTES, Rest, newest
from rig.certificates import Authority
from rig.elsewhere import write_kubeconfig
from tests.cluster.conftest import until


class Content:
    """What a connection has received: pieces pushed one by one, read as one."""

    def __init__(self):
        self.waiting, self.came, self.is_over = [], asyncio.Event(), False

    def push(self, piece: bytes) -> None:
        self.waiting.append(piece)
        self.came.set()

    def end(self) -> None:
        self.is_over = True
        self.came.set()

    async def iter_any(self):
        while self.waiting or not self.is_over:
            if not self.waiting:
                self.came.clear()
                await self.came.wait()
                continue
            piece, self.waiting = b"".join(self.waiting), []
            yield piece


async def reading(rest: Rest, content: Content, sizes: list[int], taken: list[bytes]) -> None:
    async def noted(size: int) -> None:
        sizes.append(size)
        await rest.take(size)

    async for line in split_lines(content, noted):
        taken.append(line)


def test_what_comes_during_a_rest_is_read_in_one_piece():
    async def scene():
        content, sizes, taken = Content(), [], []
        reader = asyncio.create_task(reading(Rest(lambda: 0.05), content, sizes, taken))
        content.push(b"a\n")
        await asyncio.sleep(0.01)
        assert taken == [b"a"]  # after a quiet while at once
        for word in (b"b\n", b"c\n", b"d\n"):
            content.push(word)
        content.end()
        await reader
        return sizes, taken

    assert asyncio.run(scene()) == ([2, 6], [b"a", b"b", b"c", b"d"])


def test_who_is_about_to_decide_ends_the_rest_and_sees_all_that_came():
    async def scene():
        content, taken = Content(), []
        rest = Rest(lambda: 3600.0)
        reader = asyncio.create_task(reading(rest, content, [], taken))
        content.push(b"a\n")
        await asyncio.sleep(0.01)
        content.push(b"b\nc\n")
        await asyncio.sleep(0.01)
        assert taken == [b"a"]
        await rest.end()
        assert taken == [b"a", b"b", b"c"]
        reader.cancel()

    asyncio.run(scene())


def test_ending_a_rest_that_is_none_waits_for_nothing():
    began = time.monotonic()
    asyncio.run(Rest(lambda: 3600.0).end())
    assert time.monotonic() - began < 60.0


@pytest.mark.parametrize(
    ("size", "since", "seconds"),
    [
        (6_000, 10.0, 0.5),  # one event after a quiet while: as long as may be
        (MOST_BYTES, 0.5, 0.5),
        (2 * MOST_BYTES, 0.5, 0.25),  # twice as much would wait as may wait
        (64 * MOST_BYTES, 0.64, 0.01),
        (0, 0.0, 0.5),
    ],
)
def test_a_busy_server_is_read_sooner(size, since, seconds):
    assert Rest(lambda: 0.5).length(size, since=since) == pytest.approx(seconds)


def state(kind: str, uid: str, version: int) -> bytes:
    meta = f'{{"name":"p-{uid}","namespace":"n","uid":"{uid}","resourceVersion":"{version}"}}'
    return f'{{"type":"{kind}","object":{{"kind":"Pod","apiVersion":"v1","metadata":{meta}}}}}'.encode()


MARK = b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"}}}'


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ([], []),
        ([state("ADDED", "u", 1), state("MODIFIED", "v", 2), state("MODIFIED", "u", 3)], [1, 2]),
        ([state("MODIFIED", "u", 1), state("DELETED", "u", 2)], [0, 1]),  # how it ended is its last state, and told
        ([state("DELETED", "u", 1), state("ADDED", "v", 2), state("MODIFIED", "v", 3)], [0, 2]),
        ([state("ADDED", "u", 1), MARK, state("MODIFIED", "u", 3)], [0, 1, 2]),  # the list has it, and then it changes
        ([state("ADDED", "u", 1), b'{"type":"ERROR"}', state("MODIFIED", "u", 3)], [0, 1, 2]),
        ([b"no json", b"no json"], [0, 1]),
        ([state("MODIFIED", "u", number) for number in range(100)], [99]),
    ],
)
def test_of_one_piece_the_newest_state_of_each_object_is_told(said, kept):
    assert newest(said) == [said[number] for number in kept]


def waiting(one: socket.socket, where: int) -> int:
    """Bytes that were sent to it and not read (FIONREAD), or sent by it and not received (TIOCOUTQ)."""
    return struct.unpack("i", fcntl.ioctl(one.fileno(), where, b"\0\0\0\0"))[0]


class Speaker:
    """An API server of one connection: what it says, and when, is the test's."""

    def __init__(self, folder):
        authority = Authority(folder)
        pair = authority.server()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(pair.certificate, pair.key)
        self.listening = socket.create_server(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{self.listening.getsockname()[1]}"
        certificate = authority.pair.certificate
        self.kubeconfig = write_kubeconfig(folder, "speaker", url=url, authority=certificate, user={"token": "t"})
        self.accepting = threading.Thread(target=self.accept)
        self.accepting.start()

    def accept(self) -> None:
        raw, _ = self.listening.accept()
        self.connection = self.context.wrap_socket(raw, server_side=True)

    def begin(self) -> None:
        self.accepting.join(10)
        assert b"GET " in self.connection.recv(1 << 16)
        self.connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    def say(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))

    def until_received(self, seconds: float = 0.1) -> None:
        """The client's kernel has all of it, and its loop had time to be woken for it."""
        until(lambda: waiting(self.connection, termios.TIOCOUTQ) == 0)
        client.run(asyncio.sleep(seconds), 10)

    def close(self) -> None:
        self.connection.close()
        self.listening.close()


@pytest.fixture
def speaker(tmp_path):
    with contextlib.closing(Speaker(tmp_path / "rig")) as speaker:
        yield speaker


@pytest.fixture
def api(speaker):
    api = Api(Access(str(speaker.kubeconfig)))
    yield api
    client.run(api.close(), 10)


def follow(api, rest, taken):
    async def read():
        async for line in api.lines("watched", params={}, silence_seconds=60, rest=rest.take):
            taken.append(line)

    return client.start(read())


def answers(speaker, api) -> None:
    """Two bytes on the connection that the watch had: nothing of its rest is left there."""

    async def call():
        return await api.call("GET", "next")

    with ThreadPoolExecutor() as pool:
        answer = pool.submit(client.run, call(), 10)
        assert b"GET /next" in speaker.connection.recv(1 << 16)
        speaker.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        assert answer.result().body == {}


def test_over_tls_a_rest_leaves_what_comes_alone_and_its_end_takes_all_of_it(speaker, api):
    hours = itertools.count(0.0, 3600.0)  # nothing seems to come quickly: the rest has its full length
    rest, taken = Rest(lambda: 3600.0, clock=lambda: next(hours)), []
    following = follow(api, rest, taken)
    speaker.begin()
    speaker.say(b"a\n")
    until(lambda: taken == [b"a"])
    for count in (1, 2, 30, 200, 1000):  # the last are 6 MB, more than the kernel keeps: the server is not stopped
        events = [b"%d-%s\n" % (number, b"x" * 6000) for number in range(count)]
        speaker.say(*events)
        speaker.until_received()
        before = len(taken)
        client.run(rest.end(), 10)
        assert [line + b"\n" for line in taken[before:]] == events
    speaker.connection.sendall(b"0\r\n\r\n")
    speaker.until_received()
    assert not following.done()
    client.run(rest.end(), 10)
    following.result(10)
    answers(speaker, api)


def test_the_end_of_a_rest_takes_what_was_handed_on_and_what_the_kernel_kept(speaker, api, monkeypatch):
    used, undisturbed = [], client.undisturbed

    def noted(response, rest):
        used.append(response.connection.transport.get_extra_info("socket"))
        return undisturbed(response, rest)

    monkeypatch.setattr(client, "undisturbed", noted)
    hours = itertools.count(0.0, 3600.0)
    rest, taken = Rest(lambda: 3600.0, clock=lambda: next(hours)), []
    following = follow(api, rest, taken)
    speaker.begin()
    speaker.say(b"a\n")
    until(lambda: taken == [b"a"])
    said, kept = 0, [0]
    while kept[-1] >= kept[-2:][0]:  # until it hands on what it has
        said += 1
        speaker.say(b"%d-%s\n" % (said, b"x" * 6000))
        speaker.until_received(seconds=0.01)
        kept.append(waiting(used[-1], termios.FIONREAD))
    speaker.say(b"kept\n")
    speaker.until_received()
    assert waiting(used[-1], termios.FIONREAD) > 0
    client.run(rest.end(), 10)
    assert (len(taken), taken[-1]) == (1 + said + 1, b"kept")
    following.cancel()


def test_a_connection_whose_watch_ended_is_not_kept_at_rest(speaker, api):
    taken = []
    following = follow(api, Rest(lambda: 3600.0), taken)
    speaker.begin()
    speaker.connection.sendall(b"2\r\na\n\r\n0\r\n\r\n")
    until(lambda: taken == [b"a"])
    answers(speaker, api)
    following.cancel()
