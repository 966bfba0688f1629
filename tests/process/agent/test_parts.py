"""Parts of the agent in isolation: lines, batches, the spool, GPUs, commands, the built file."""

import ast
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from agent import launch, linux, names
from agent.build import build
from agent.frameworks import Framework, Torchrun
from agent.loop import Loop
from agent.output import lines
from agent.output.blame import TAIL_LINE_BYTES, TAIL_LINES
from agent.output.journal import Journal
from agent.output.outbox import Outbox
from agent.output.spool import Spool
from agent.output.streams import Stream
from agent.output.tail import Tail
from agent.ranks import nvml
from agent.state import Spec, StateFolder
from agent.wire import batch
from tests.support import fake_nvml

ROOT = Path(__file__).resolve().parents[3]
LIMIT = lines.LINE_LIMIT_BYTES

# -- lines


def text(*found: bytes) -> bytes:
    return b"".join(line + b"\n" for line in found)


@pytest.mark.parametrize(
    "pieces, expected",
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\nc"], [b"ab"]),
        ([b"\n\n"], [b"", b""]),
        ([b"a\r\nb\r\n"], [b"a", b"b"]),
        ([b"a\r", b"\nb\n"], [b"a", b"b"]),
        ([b"\r 5%", b"\r 6%", b"\r100%\n", b"done\n"], [b"100%", b"done"]),
        ([b"1%\r", b"2%\r", b"\n"], [b"2%"]),
    ],
)
def test_pieces_become_lines(pieces: list[bytes], expected: list[bytes]) -> None:
    splitter = lines.Splitter()
    assert b"".join(splitter.feed(piece, now=0.0) for piece in pieces) == text(*expected)


def test_a_progress_bar_gives_one_line_a_second_and_no_duplicate() -> None:
    splitter = lines.Splitter()
    assert splitter.feed(b"\r 5%", now=0.1) == b"" and splitter.due() == 1.1
    assert splitter.feed(b"\r 6%", now=0.5) == b"" and splitter.due() == 1.1
    assert splitter.tick(now=1.0) == b"" and splitter.tick(now=1.1) == text(b" 6%")
    assert splitter.due() is None
    assert splitter.feed(b"\r100%", now=1.2) == b""
    assert splitter.tick(now=2.3) == text(b"100%")
    assert splitter.feed(b"\nnext\n", now=2.4) == text(b"next") and splitter.end() == b""


def test_what_is_printed_beside_a_bar_is_a_line_of_its_own() -> None:
    splitter = lines.Splitter()
    bars = b"\r 10%|#    | 1/10 [00:01<00:09,  1.02it/s, loss=0.5]\r 20%|##   | 2/10 [00:02<00:08,  1.02it/s, loss=0.4]"
    assert splitter.feed(bars + b"saved ckpt.pt\n\r 30%|###  | 3/10 [00:03<00:07, 1.0it/s]\n", now=0) == (
        b" 20%|##   | 2/10 [00:02<00:08,  1.02it/s, loss=0.4]\nsaved ckpt.pt\n 30%|###  | 3/10 [00:03<00:07, 1.0it/s]\n"
    )


def test_an_unfinished_line_is_shown_after_a_second_and_once_more_when_it_ends() -> None:
    splitter = lines.Splitter()
    assert splitter.feed(b"loading\nwaiting for lock ... ", now=0.1) == text(b"loading") and splitter.due() == 1.1
    assert splitter.tick(now=1.0) == b"" and splitter.tick(now=1.1) == text(b"waiting for lock ... ")
    assert splitter.due() is None
    assert splitter.feed(b"done\nnext\n", now=60.0) == text(b"waiting for lock ... done", b"next")


def test_an_unfinished_line_that_ends_unchanged_is_shown_once() -> None:
    splitter = lines.Splitter()
    splitter.feed(b"a prompt: ", now=0.0)
    assert splitter.tick(now=1.0) == text(b"a prompt: ")
    assert splitter.feed(b"\n", now=2.0) == b"" and splitter.end() == b""


def test_a_line_whose_end_waits_in_the_pipe_is_not_shown_unfinished(tmp_path: Path, monkeypatch: Any) -> None:
    """A busy machine may hold the agent between two reads."""
    read, write = os.pipe()
    outbox = Mock(spec=Outbox)
    stream = Stream(read, rank=0, loop=Mock(spec=Loop), outbox=outbox, journal=Journal(str(tmp_path)))
    for piece in (b"step", b" ", b"1"):
        os.write(write, piece)
    stream.read()
    os.write(write, b"2\n")
    due = stream.due()
    assert due is not None
    monkeypatch.setattr(time, "monotonic", lambda: due + 5)
    stream.tick()
    os.close(write)
    stream.pull()
    assert [call.kwargs["text"] for call in outbox.text.call_args_list] == [b"step 12\n"]


def test_a_line_that_grows_for_an_hour_is_shown_a_few_times() -> None:
    splitter, shown = lines.Splitter(), []
    for second in range(3600):
        splitter.feed(b".", now=float(second))
        shown += [splitter.tick(now=float(second))]
    assert [len(one) - 1 for one in shown if one][:4] == [2, 5, 10, 19] and len([one for one in shown if one]) < 13


def test_carriage_returns_alone_are_kept_as_one() -> None:
    splitter = lines.Splitter()
    for piece in (b"50%", b"\r" * 5000, b"\r" * 5000):
        splitter.feed(piece, now=0.0)
    assert splitter.halves() == (b"50%\r", b"")
    assert splitter.feed(b"60%\n", now=0.0) == b"60%\n"


def test_a_progress_bar_that_never_ends_takes_bounded_memory() -> None:
    splitter = lines.Splitter()
    for number in range(100_000):
        splitter.feed(b"\r%d%%" % number, now=0.0)
    assert len(pickle.dumps(splitter)) < 500
    assert splitter.end() == text(b"99999%")


def test_long_lines_are_cut_between_characters() -> None:
    splitter = lines.Splitter()
    text = ("ä" * (LIMIT + 1) + "x").encode()
    pieces = [*(text[at : at + 65536] for at in range(0, len(text), 65536)), b"\n"]
    found = b"".join(splitter.feed(piece, now=0.0) for piece in pieces).splitlines()
    assert len(found) == 3 and all(part.endswith("…".encode()) for part in found[:-1])
    assert b"".join(part.decode().rstrip("…").encode() for part in found) == text


def test_a_tail_holds_the_last_lines_whatever_the_sizes_of_pieces() -> None:
    tail, whole = Tail(), []
    for number in range(300):
        some = [b"%d.%d" % (number, n) for n in range(number % 7)]
        whole += [(float(number), line) for line in some]
        if some:
            tail.add(text(*some), count=len(some), at=float(number))
    assert tail.lines() == whole[-TAIL_LINES:]


def test_a_tail_of_long_lines_takes_bounded_memory() -> None:
    tail = Tail()
    for number in range(500):
        tail.add(text(b"%d" % number + b"x" * 300_000), count=1, at=0.0)
    found = tail.lines()
    assert len(found) == TAIL_LINES and found[-1][1].startswith(b"499x")
    assert len(pickle.dumps(tail)) <= (TAIL_LINE_BYTES + 100) * TAIL_LINES


# -- batches and the spool


def log(rank: int, *, first_line: int, blob: bytes) -> dict:
    return {"kind": "log", "rank": rank, "seq": 1, "first_line": first_line, "lines": 3, "first_at": 1.0, "last_at": 2.0,
            "raw_bytes": 9, "bytes": len(blob)}  # fmt: skip


def test_a_batch_survives_encoding_and_stamping() -> None:
    one = batch.Batch(
        7, [{"kind": "sample"}, log(0, first_line=0, blob=b"abc"), log(1, first_line=5, blob=b"de")], [b"abc", b"de"]
    )
    assert batch.decode(batch.encode(one)) == one
    assert batch.decode(batch.stamped(batch.encode(one), sent_at=1.5)) == one
    assert b'{"sent_at":1.500,"version":1,"seq":7,' in batch.stamped(batch.encode(one), sent_at=1.5)


def test_a_spool_opened_again_continues_its_numbers(tmp_path: Path) -> None:
    first = Spool(str(tmp_path))
    assert [first.put([], blobs=[]) for _ in range(12)] == list(range(1, 13))
    first.acknowledge(9)
    again = Spool(str(tmp_path))
    assert len(again) == 3 and again.get()[0] == 10 and again.put([], blobs=[]) == 13  # type: ignore[index]


def test_states_are_kept_in_a_spool_that_is_far_too_small(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), limit_bytes=100)
    blob = b"x" * 1000
    spool.put(
        [{"kind": "rank", "state": "failed", "exit_code": 3}, log(0, first_line=0, blob=blob), {"kind": "sample"}],
        blobs=[blob],
    )
    _, body = spool.get()  # type: ignore[misc]
    assert [one["kind"] for one in batch.decode(body).items] == ["rank", "gap"]


def test_a_spool_that_cannot_be_written_loses_text_but_no_state(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"))
    shutil.rmtree(tmp_path / "spool")
    spool.put([{"kind": "replica", "state": "failed"}, log(0, first_line=0, blob=b"abc")], blobs=[b"abc"])
    _, body = spool.get()  # type: ignore[misc]
    assert [one["kind"] for one in batch.decode(body).items] == ["replica", "gap"]


# -- GPUs


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def of(source: str) -> Path:
        built = fake_nvml.build(source, tmp_path_factory.mktemp("nvml"))
        return built or pytest.skip("no C compiler")

    return of


@pytest.mark.parametrize(
    "device, reading",
    [
        ("0", (0.10, 1)), ("1", (0.75, 5 << 32)), ("2", (None, None)),
        ("MIG-abc", (0.75, 5 << 32)), ("GPU-unknown", (None, None)), (None, (None, None)),
    ],
)  # fmt: skip
def test_a_gpu_is_read_through_nvml(
    nvml_library: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, device: str | None, reading: tuple
) -> None:
    monkeypatch.setenv(nvml.LIBRARY_ENV, str(nvml_library(fake_nvml.OLD)))
    found = nvml.Nvml().reading(device)
    assert found[:2] == reading
    assert found[2:] == (80 << 30 if reading[0] is not None else None, None, None, None, None)  # an old library


def test_power_temperature_and_errors_are_read_where_the_library_has_them(
    nvml_library: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(nvml.LIBRARY_ENV, str(nvml_library(fake_nvml.NEWER)))
    readings = nvml.Nvml()
    assert readings.reading("0") == (0.10, 1, 80 << 30, 612.4, 64.0, 0, None)
    assert readings.reading("1") == (0.75, 5 << 32, 80 << 30, None, 41.0, 3, 79)
    assert readings.reading("0").xid is None and readings.reading("1").xid == 79


@pytest.mark.parametrize("library", ["/nowhere/libnvidia-ml.so", "libc.so.6"])
def test_without_nvml_there_are_no_readings_and_no_error(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setenv(nvml.LIBRARY_ENV, library)
    readings = nvml.Nvml()
    assert [readings.reading("0"), readings.reading("0")] == [nvml.NOTHING, nvml.NOTHING]


@pytest.mark.parametrize(
    "local_rank, visible, device",
    [
        (1, None, "1"), (1, "4,6", "6"), (0, "GPU-a,MIG-b", "GPU-a"), (1, "GPU-a, MIG-b", "MIG-b"),
        (2, "0,1", None), (0, "", None), (1, "0,-1,2", None), (0, "NoDevFiles", None),
    ],
)  # fmt: skip
def test_the_gpu_of_a_rank_is_the_visible_one_at_its_local_rank(
    local_rank: int, visible: str | None, device: str | None
) -> None:
    assert nvml.device_of(local_rank, visible=visible) == device


# -- commands


@pytest.mark.parametrize(
    "command, missing",
    [
        ("torchrun gone.py", "gone.py"),
        ("torchrun --nproc-per-node 2 --standalone gone.py --x y.py", "gone.py"),
        ("python -m torch.distributed.run --nnodes=1 gone.py", "gone.py"),
        ("python3 gone.py", "gone.py"),
        ("torchrun here.py gone.py", ""),
        ("torchrun -m gone.py", ""),
        ("torchrun --no-python gone.py", ""),
        ("python -c gone.py", ""),
        ("python -u here.py", ""),
        ("bash gone.py", ""),
    ],
)
def test_a_missing_script_is_found_before_the_launch(tmp_path: Path, command: str, missing: str) -> None:
    (tmp_path / "here.py").touch()
    assert launch.missing_script(command.split(), framework=Torchrun(), code=str(tmp_path)) == missing


def test_torchrun_is_run_as_a_module_if_the_command_is_missing(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    found = launch.resolve(
        ["torchrun", "train.py"], framework=Torchrun(), env={"PATH": str(tmp_path)}, code=str(tmp_path)
    )
    assert found == [sys.executable, "-m", "torch.distributed.run", "train.py"]


def words_for_another_user(path: Path) -> str:
    """Return what a user other than root would be told about a program."""
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresuid(65534, 65534, 65534)
            os.write(write, launch.obstacle(str(path)).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read, encoding="utf-8") as file:
        return file.read()


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_program_in_a_folder_that_the_jobs_user_may_not_enter_is_named_with_user_and_folder(is_linked: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        (top := Path(name)).chmod(0o755)
        (top / "home/bin").mkdir(parents=True)
        (top / "home/bin/python").touch()
        (top / "python").symlink_to(top / "home/bin/python")
        (top / "home").chmod(0)
        told = words_for_another_user(top / "python" if is_linked else top / "home/bin/python")
        (top / "home").chmod(0o700)
    assert re.match(rf"; the job runs as \S+( \d+)?, which may not enter {name}/home: move it, or", told)


def test_a_link_whose_program_is_gone_says_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to("/usr/bin/python3.99")
    found = launch.resolve(
        [f"{tmp_path}/python", "-V"], framework=Framework(), env={"PATH": str(tmp_path)}, code=str(tmp_path)
    )
    assert isinstance(found, launch.Refusal) and found.exit_code == 127
    assert found.reason.endswith("/python; it is a link to /usr/bin/python3.99, which is not here")


# -- the built file


def test_builds_of_the_same_sources_are_identical(tmp_path: Path) -> None:
    one, two = build(tmp_path / "a" / "agent.pyz"), build(tmp_path / "b" / "agent.pyz")
    assert one.read_bytes() == two.read_bytes() and one.stat().st_mode & 0o111


@pytest.mark.parametrize(
    "path", [*(ROOT / "agent").rglob("*.py"), *(ROOT / "client" / "muster" / name for name in ("__init__.py", "_report.py"))],
    ids=lambda path: path.name,
)  # fmt: skip
def test_the_agent_parses_as_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))


def oldest_python() -> str:
    """Return the oldest Python from 3.8 on that works on this machine, or the one that runs the tests."""
    home = Path.home() / ".pyenv/versions"
    for minor in range(8, sys.version_info.minor):
        found = [shutil.which(f"python3.{minor}"), *map(str, sorted(home.glob(f"3.{minor}.*/bin/python")))]
        for python in filter(None, found):
            if subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
                return python
    return sys.executable


def test_the_built_file_imports_under_an_old_python(pyz: Path) -> None:
    modules = "_muster_agent.replica, _muster_agent.ranks.shim, _muster_agent.output.guardian, muster"
    code = f"import sys; sys.path.insert(0, {str(pyz)!r}); import {modules}"
    subprocess.run([oldest_python(), "-c", code], check=True)


def test_a_wrong_option_prints_the_usage(pyz: Path) -> None:
    ended = subprocess.run([sys.executable, pyz, "--nonsense"], capture_output=True, text=True)
    assert ended.returncode == 2 and ended.stderr.startswith("usage:")


def test_out_of_memory_kills_are_counted_in_the_agents_own_cgroup_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's count would attribute the kill of another job to this one."""
    asked: list[str] = []

    def unreadable(path: str, name: str) -> int:
        asked.append(path)
        raise FileNotFoundError(path)

    monkeypatch.setattr(linux, "counter", unreadable)
    assert linux.oom_kills() is None
    assert [path.startswith("/sys/fs/cgroup/") for path in asked] == [True]


# -- names of replicas


def test_a_name_to_listen_at_is_awaited_until_it_can_be_looked_up():
    answers = iter([OSError("not yet"), OSError("not yet"), "10.0.0.7"])

    def look(name: str) -> str:
        assert name == "one-worker-0.m-one.jobs.svc"
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    env = {"MUSTER_HOST": "one-worker-0.m-one.jobs.svc", "JAX_COORDINATOR_ADDRESS": "one-worker-0.m-one.jobs.svc:29500"}
    assert len(list(names.own(env, look=look))) == 2
    assert list(answers) == []


@pytest.mark.parametrize(
    "env",
    [
        {"MASTER_ADDR": "127.0.0.1"},
        {"MUSTER_HOST": "one-worker-1.m-one.jobs.svc", "MASTER_ADDR": "one-worker-0.m-one.jobs.svc"},
    ],
)
def test_a_name_of_no_use_to_the_command_is_not_looked_up(env):
    def look(name: str) -> str:
        raise AssertionError(name)

    assert list(names.own(env, look=look)) == []


def test_a_name_that_stays_unknown_ends_the_wait_with_the_resolvers_words():
    def look(name: str) -> str:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(names.Unknown, match=r"^Name or service not known$"):
        next(names.awaited("one-master-0.m-one.jobs.svc", seconds=0, pause=1, look=look))


MASTER = "one-master-0.m-one.jobs.svc"


@pytest.mark.parametrize(
    ("command", "env", "awaits"),
    [
        (["torchrun", "x.py"], {"PET_MASTER_ADDR": MASTER, "MUSTER_HOST": "one-worker-0.m-one.jobs.svc"}, True),
        (["python3", "-m", "torch.distributed.run", "x.py"], {"PET_MASTER_ADDR": MASTER}, True),
        (["torchrun", "x.py"], {"PET_RDZV_ENDPOINT": f"{MASTER}:29500"}, True),
        (["torchrun", "x.py"], {"PET_MASTER_ADDR": MASTER, "MUSTER_HOST": MASTER}, False),  # its own
        (["torchrun", "x.py"], {"PET_MASTER_ADDR": "127.0.0.1"}, False),
        (["torchrun", "x.py"], {"PET_RDZV_ENDPOINT": "[::1]:29500"}, False),
        (["torchrun", "x.py"], {}, False),
        (["nvidia-smi"], {"PET_MASTER_ADDR": MASTER}, False),  # the master may have printed it and be gone
    ],
)
def test_torchrun_alone_starts_once_the_name_of_its_master_is_known(tmp_path, command, env, awaits):
    spec = Spec("42", 1, "worker", 0, command, start_timeout_seconds=90)
    folder = StateFolder(str(tmp_path))
    words = Torchrun().wrapped(["/bin/x", "y"], spec=spec, folder=folder, env=env, pyz="/agent.pyz")
    assert words[-2:] == ["/bin/x", "y"]
    assert words[4:-2] == (["/agent.pyz", "--once-known", MASTER, "90"] if awaits else [])
