"""Deciding from its last lines whether a rank failed by its own fault."""

import pytest

from agent.output.blame import blame, last_words
from agent.output.tail import Tail

FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    step()\n'
CLOSED = "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:3244"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94, unhandled system error\n"
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed\n"
    "Last error:\nsocketProgress: Connection closed by remote peer"
)

CANNOT_LISTEN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
    "port: 12355, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
)
CANNOT_BIND = (
    "torch.distributed.DistNetworkError: The server socket has failed to bind. port: 80, useIpv6: 0, code: -13, "
    "name: EACCES, message: permission denied"
)
NO_INTERFACE = (
    "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: ib7"
)
NO_NAME = "[W1127 19:37:18.958 socket.cpp:764] [c10d] The IPv6 network addresses of (no-such-host, 12399) cannot be retrieved (gai error: -2 - Name or service not known).\n"
CANNOT_CONNECT = "torch.distributed.DistNetworkError: The client socket has timed out after 6000ms while trying to connect to ({}, 12399)."


def lines(text: str) -> list[tuple[float, bytes]]:
    return [(float(number), line.encode()) for number, line in enumerate(text.split("\n"))]


@pytest.mark.parametrize(
    "text, error_at, is_connection_error",
    [
        (FRAMES + "ValueError: boom", 0, False),
        ("step 1\n" + FRAMES + CLOSED, 1, True),
        (FRAMES + NCCL, 0, True),
        (FRAMES + "RuntimeError: Socket Timeout", 0, True),
        (FRAMES + "torch.distributed.DistStoreError: wait timeout after 300000ms", 0, True),
        # Its own error first, then lost connections during cleanup: to blame.
        (FRAMES + "ValueError: boom" + DURING + FRAMES + CLOSED, 0, False),
        (FRAMES + "ValueError: boom\n[W1121 12:00:00 socket.cpp:460] Broken pipe", 0, False),
        # A lost connection wrapped in an error of its own: not to blame.
        (FRAMES + CLOSED + CAUSED + FRAMES + "TrainingError: all_reduce failed", 0, True),
        # An earlier error that was logged and survived.
        (FRAMES + "KeyError: 'x'\n" + "step\n" * 30 + FRAMES + CLOSED, 34, True),
        # An exception in a thread or a destructor does not end a process.
        (FRAMES + "ValueError: boom\nException in thread Thread-3:\n" + FRAMES + CLOSED, 0, False),
        ("step 1\nterminate called: NCCL watchdog: remote process exited or there was a network error", None, True),
        ("step 1\nstep 2", None, False),
        # It cannot listen, bind or resolve: its own error, even if another rank waits for it.
        (FRAMES + CANNOT_LISTEN, 0, False),
        (FRAMES + CANNOT_BIND, 0, False),
        (FRAMES + NO_INTERFACE, 0, False),
        (FRAMES + "OSError: [Errno 98] Address already in use", 0, False),
        (FRAMES + "socket.gaierror: [Errno -3] Temporary failure in name resolution", 0, False),
        (NO_NAME + FRAMES + CANNOT_CONNECT.format("no-such-host"), 1, False),
        (NO_NAME + FRAMES + CANNOT_CONNECT.format("worker-0"), 1, True),
        (FRAMES + CANNOT_CONNECT.format("worker-0"), 0, True),
        ("", None, False),
    ],
)
def test_the_root_of_the_last_traceback_decides(text: str, error_at: float | None, is_connection_error: bool) -> None:
    found = blame(lines(text))
    assert (found.error_at, found.is_connection_error) == (error_at, is_connection_error)
    prefixed = blame(lines("\n".join("[rank3]: " + line for line in text.split("\n"))))
    assert prefixed == found


def test_an_abort_long_after_a_traceback_is_explained_by_the_last_lines() -> None:
    text = FRAMES + "KeyError: survived\n" + "step\n" * 20 + "terminate called\n what(): remote process exited"
    assert blame(lines(text), signal=6).is_connection_error
    assert not blame(lines(text), signal=None).is_connection_error


def test_an_abort_while_an_exception_ends_the_process_is_explained_by_it() -> None:
    text = FRAMES + "ValueError: boom\nterminate called\n what(): Connection closed by peer"
    at_once = [(7.0, line) for _, line in lines(text)]
    assert not blame(at_once, signal=6).is_connection_error


def test_a_traceback_between_lines_of_the_other_stream_counts() -> None:
    found = blame(lines("step\n" + FRAMES + CLOSED))
    assert (found.error_at, found.is_connection_error) == (1.0, True)


class TestLastWords:
    """The last lines of a failed rank that are sent along, so that its log need not be read."""

    def words(self, text, *, signal=None, ended_at=0.0):
        return last_words(lines(text), ended_at=ended_at, signal=signal)

    def test_the_last_exception_chain_is_sent_from_its_first_cause_on(self) -> None:
        text = (
            FRAMES
            + "KeyError: survived\nstep 1\n"
            + FRAMES
            + "ValueError: boom"
            + CAUSED
            + FRAMES
            + "TrainingError: step"
        )
        assert self.words(text)["traceback"] == FRAMES + "ValueError: boom" + CAUSED + FRAMES + "TrainingError: step"

    def test_a_traceback_between_lines_of_the_other_stream_is_sent(self) -> None:
        text = "warning\nstep\n" + FRAMES + "ValueError: boom"
        found = self.words(text)
        assert found["traceback"].endswith("ValueError: boom") and found["stderr"] == text

    def test_the_line_that_names_a_failed_thread_is_sent_too(self) -> None:
        found = self.words("Exception in thread Thread-3:\n" + FRAMES + "ValueError: boom")
        assert found["traceback"].startswith("Exception in thread")

    def test_a_survived_error_does_not_explain_a_signal(self) -> None:
        text = FRAMES + "KeyError: survived\n" + "step\n" * 30
        assert self.words(text, signal=9, ended_at=40.0)["traceback"] == ""
        assert self.words(text, signal=None, ended_at=40.0)["traceback"] != ""

    def test_the_last_words_are_bounded(self) -> None:
        found = self.words(FRAMES + "x" * 10**6 + "\n" + "ü" * 2000 * 400 + "\n" + "y" * 10**6)
        assert sum(map(len, found.values())) < 40_000


def test_a_traceback_is_kept_though_many_lines_follow_it() -> None:
    tail = Tail()
    for number in range(100):
        tail.add(b"step %d\n" % number, count=1, at=float(number))
    text = ("Exception ignored in: x\n" + FRAMES + "ValueError: boom\n").encode()
    tail.add(text, count=text.count(b"\n"), at=100.0)
    for number in range(20_000):
        tail.add(b"buffered %d\n" % number, count=1, at=101.0)
    error = tail.error()
    assert b"ValueError: boom" in [line for _, line in error]
    assert (error[0][1], len(error) <= 800) == (b"step 96", True)
    assert not any(b"Traceback" in line for _, line in tail.lines())


def test_a_traceback_within_one_large_piece_is_kept_too() -> None:
    tail = Tail()
    text = ("step\n" * 50 + FRAMES + "ValueError: boom\n" + "buffered\n" * 20_000).encode()
    tail.add(text, count=text.count(b"\n"), at=1.0)
    found = last_words([*tail.error(), *tail.lines()], ended_at=1.0, signal=None)
    assert "ValueError: boom" in found["traceback"]


def test_the_warning_about_a_name_is_sent_however_far_above_the_error_it_was_printed() -> None:
    text = NO_NAME + "frame #0: c10::Error\n" * 60 + FRAMES + CANNOT_CONNECT.format("no-such-host")
    sent = last_words(lines(text), ended_at=99.0, signal=None)["stderr"].split("\n")
    assert sent[0] == NO_NAME.strip() and sent[-1].endswith("(no-such-host, 12399).")
    text = NO_NAME + "frame #0: c10::Error\n" * 60 + FRAMES + CANNOT_CONNECT.format("worker-0")
    assert "gai error" not in last_words(lines(text), ended_at=99.0, signal=None)["stderr"]


def test_of_a_group_of_exceptions_all_is_sent() -> None:
    group = """\
step 3
  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 10, in main
  | ExceptionGroup: 2 of 3 shards failed (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "train.py", line 4, in shard
    | ValueError: shard 1: checksum mismatch
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "train.py", line 6, in shard
    | KeyError: 'tokens'
    |
    | The above exception was the direct cause of the following exception:
    |
    | Traceback (most recent call last):
    |   File "train.py", line 7, in shard
    | OSError: shard 2 unreadable
    +------------------------------------"""
    assert blame(lines(group)).error_at == 1
    sent = last_words(lines(group), ended_at=30, signal=None)["traceback"]
    assert sent.split("\n") == group.split("\n")[1:]
