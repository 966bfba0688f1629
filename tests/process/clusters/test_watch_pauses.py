"""Pauses between two reads of a watch: data that arrives meanwhile is read in one piece, and decisions do not wait for it."""

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

from jobs.clusters.kubernetes.api import client
from jobs.clusters.kubernetes.api.client import Api, split_lines
from jobs.clusters.kubernetes.api.watch_batching import MOST_BYTES, Rest, newest
from jobs.clusters.kubernetes.build.options import ApiAccess
from rig.certificates import Authority
from rig.elsewhere import write_kubeconfig
from tests.support.patience import until


class Content:
    """Received data of a connection: pieces are pushed one by one and read as one."""

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


def test_data_that_arrives_during_a_pause_is_read_in_one_piece():
    async def scene():
        content, sizes, taken = Content(), [], []
        reader = asyncio.create_task(reading(Rest(lambda: 0.05), content, sizes, taken))
        content.push(b"a\n")
        await asyncio.sleep(0.01)
        assert taken == [b"a"]  # the first event after a quiet period is read immediately
        for word in (b"b\n", b"c\n", b"d\n"):
            content.push(word)
        content.end()
        await reader
        return sizes, taken

    assert asyncio.run(scene()) == ([2, 6], [b"a", b"b", b"c", b"d"])


def test_a_decision_ends_the_pause_and_reads_all_received_data():
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


def test_ending_a_pause_that_has_not_begun_returns_immediately():
    began = time.monotonic()
    asyncio.run(Rest(lambda: 3600.0).end())
    assert time.monotonic() - began < 60.0


@pytest.mark.parametrize(
    ("size", "since", "seconds"),
    [
        (6_000, 10.0, 0.5),  # one event after a quiet period: the longest pause
        (MOST_BYTES, 0.5, 0.5),
        (2 * MOST_BYTES, 0.5, 0.25),  # a full pause would collect twice the limit
        (64 * MOST_BYTES, 0.64, 0.01),
        (0, 0.0, 0.5),
    ],
)
def test_pauses_are_shorter_for_a_busy_server(size, since, seconds):
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
        (
            [state("MODIFIED", "u", 1), state("DELETED", "u", 2)],
            [0, 1],
        ),  # the last state before the deletion is reported
        ([state("DELETED", "u", 1), state("ADDED", "v", 2), state("MODIFIED", "v", 3)], [0, 2]),
        ([state("ADDED", "u", 1), MARK, state("MODIFIED", "u", 3)], [0, 1, 2]),  # listed first, changed afterwards
        ([state("ADDED", "u", 1), b'{"type":"ERROR"}', state("MODIFIED", "u", 3)], [0, 1, 2]),
        ([b"no json", b"no json"], [0, 1]),
        ([state("MODIFIED", "u", number) for number in range(100)], [99]),
    ],
)
def test_only_the_newest_state_of_each_object_in_a_piece_is_reported(said, kept):
    assert newest(said) == [said[number] for number in kept]


def waiting(one: socket.socket, where: int) -> int:
    """Bytes received and not read (FIONREAD), or sent and not acknowledged (TIOCOUTQ)."""
    return struct.unpack("i", fcntl.ioctl(one.fileno(), where, b"\0\0\0\0"))[0]


class Speaker:
    """An API server with one connection; the test controls what it sends, and when."""

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
        """Wait until the client's kernel has all data, and its event loop had time to react."""
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
    api = Api(ApiAccess(str(speaker.kubeconfig)))
    yield api
    client.run(api.close(), 10)


def follow(api, rest, taken):
    async def read():
        async for line in api.lines("watched", params={}, silence_seconds=60, rest=rest.take):
            taken.append(line)

    return client.start(read())


def answers(speaker, api) -> None:
    """The next watch on the connection gets its line: no state of the pause is left."""

    async def call():
        return [line async for line in api.lines("next", params={}, silence_seconds=60)]

    with ThreadPoolExecutor() as pool:
        answer = pool.submit(client.run, call(), 10)
        assert b"GET /next" in speaker.connection.recv(1 << 16)
        speaker.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}\n")
        assert answer.result() == [b"{}"]


def test_over_tls_data_waits_during_a_pause_and_is_all_read_at_its_end(speaker, api):
    hours = itertools.count(0.0, 3600.0)  # events appear to be rare, so the pause has its full length
    rest, taken = Rest(lambda: 3600.0, clock=lambda: next(hours)), []
    following = follow(api, rest, taken)
    speaker.begin()
    speaker.say(b"a\n")
    until(lambda: taken == [b"a"])
    for count in (1, 2, 30, 200, 1000):  # the last are 6 MB, more than the kernel buffers: the server is not blocked
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


def test_the_end_of_a_pause_reads_buffered_data_and_the_kernels_data(speaker, api, monkeypatch):
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
    while kept[-1] >= kept[-2:][0]:  # until the transport reads the kernel's buffer
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


def test_a_connection_whose_watch_ended_is_not_left_paused(speaker, api):
    taken = []
    following = follow(api, Rest(lambda: 3600.0), taken)
    speaker.begin()
    speaker.connection.sendall(b"2\r\na\n\r\n0\r\n\r\n")
    until(lambda: taken == [b"a"])
    answers(speaker, api)
    following.cancel()
