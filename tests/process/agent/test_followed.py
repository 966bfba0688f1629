"""Log files that grow: every line once, whole, and in the order of its file."""

import os
import threading
from pathlib import Path

from agent.output.followed import Followed


class Reader:
    """Reads the pipe in a thread of its own, until it is closed."""

    def __init__(self, followed: Followed) -> None:
        self._fd, self.text = followed.output, b""
        self._thread = threading.Thread(target=self._read)
        followed.start()
        self._thread.start()

    def _read(self) -> None:
        while piece := os.read(self._fd, 65536):
            self.text += piece
        os.close(self._fd)

    def wait(self) -> list[bytes]:
        self._thread.join()
        return self.text.split(b"\n")[:-1]


def follow(folder: Path) -> Followed:
    return Followed(lambda: sorted(map(str, folder.glob("*.out"))), is_noise=lambda line: line.startswith(b":job_id:"))


def test_files_that_come_later_are_followed_too_and_noise_is_left_out(tmp_path):
    (tmp_path / "a.out").write_bytes(b":job_id:01\none\ntwo\n")
    followed = follow(tmp_path)
    reader = Reader(followed)
    with open(tmp_path / "b.out", "ab", buffering=0) as later:
        later.write(b"three\nhalf of ")
        later.write(b"a line\n")
        later.write(b"progress 10%\rprogress 90%\n")
        later.write(b"no newline at the end")
    followed.finish()
    assert reader.wait() == [
        b"one", b"two", b"three", b"half of a line", b"progress 10%\rprogress 90%", b"no newline at the end",
    ]  # fmt: skip


def test_lines_of_two_files_that_are_written_in_parts_never_mix(tmp_path):
    followed = follow(tmp_path)
    reader = Reader(followed)
    with open(tmp_path / "a.out", "ab", buffering=0) as one, open(tmp_path / "b.out", "ab", buffering=0) as other:
        for number in range(200):
            one.write(b"a" * 50)
            other.write(b"b" * 50)
            one.write(b"a%d\n" % number)
            other.write(b"b%d\n" % number)
    followed.finish()
    found = reader.wait()
    for letter in (b"a", b"b"):
        assert [line for line in found if line.startswith(letter)] == [letter * 51 + b"%d" % n for n in range(200)]


def test_a_rotated_file_is_read_to_its_end_and_then_the_new_one(tmp_path):
    (tmp_path / "a.out").write_bytes(b"old\n")
    followed = follow(tmp_path)
    followed.pass_on()
    with open(tmp_path / "a.out", "ab") as file:
        file.write(b"last of the old\n")
    os.rename(tmp_path / "a.out", tmp_path / "a.out.1")
    (tmp_path / "a.out").write_bytes(b"new\n")
    reader = Reader(followed)
    followed.finish()
    assert reader.wait() == [b"old", b"last of the old", b"new"]


def test_more_than_one_read_is_passed_on_at_the_end(tmp_path):
    lines = [b"%07d" % number for number in range(200_000)]
    (tmp_path / "a.out").write_bytes(b"\n".join(lines) + b"\n")
    followed = follow(tmp_path)
    reader = Reader(followed)
    followed.finish()
    assert reader.wait() == lines
