"""Delivery of lines when the control plane is slow, unreachable, loses responses or refuses batches."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.process.agent.bench import Bench
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.machine import need
from tests.support.patience import PATIENCE_SECONDS

COUNT = "i=0; while [ $i -lt {lines} ]; do echo line $i; i=$((i+1)); [ $((i % {each})) = 0 ] && sleep {pause}; done"


def numbered(lines: int, *, each: int = 50, pause: float = 0.05) -> list[str]:
    return ["bash", "-c", COUNT.format(lines=lines, each=each, pause=pause)]


def assert_complete(control_plane: FakeControlPlane, lines: int) -> None:
    received = control_plane.of()
    assert received.texts() == [f"line {number}" for number in range(lines)]
    assert [number for number, _, _ in received.lines[-1]] == list(range(lines))
    seqs = [one["seq"] for one in received.kind("log", rank=-1)]
    assert seqs == list(range(1, len(seqs) + 1))


def test_no_line_is_lost_or_duplicated_while_the_control_plane_is_down(
    bench: Bench, control_plane: FakeControlPlane
) -> None:
    folder = bench.replica(numbered(2000))
    agent = bench.start(folder)
    bench.wait_for(lambda: control_plane.of().texts())
    control_plane.down()
    bench.wait_for(lambda: len(list((folder / "spool").glob("*.batch"))) > 2)
    control_plane.up()
    agent.wait(PATIENCE_SECONDS)
    assert_complete(control_plane, 2000)
    assert bench.status()["is_drained"] and not list((folder / "spool").glob("*"))


def test_a_control_plane_at_a_new_address_is_found_again(bench: Bench, control_plane: FakeControlPlane) -> None:
    agent = bench.start(bench.replica(numbered(1000)))
    bench.wait_for(lambda: control_plane.of().texts())
    control_plane.down()
    control_plane.port = 0
    control_plane.up()
    bench.point_to(control_plane.url)
    agent.wait(PATIENCE_SECONDS)
    assert_complete(control_plane, 1000)


def test_a_lost_response_duplicates_nothing(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.losses = 3
    bench.run(numbered(300))
    assert_complete(control_plane, 300)
    assert control_plane.of().posts > control_plane.of().ack


def test_what_an_agent_did_not_send_in_time_is_sent_by_a_drain(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.refuse = 503
    folder = bench.replica(numbered(100))
    bench.start(folder, MUSTER_DRAIN_SECONDS="0.2").wait(PATIENCE_SECONDS)
    assert (bench.status()["state"], bench.status()["is_drained"]) == ("succeeded", False)
    control_plane.refuse = 0
    assert bench.start(folder, how="--drain").wait(PATIENCE_SECONDS) == 0
    assert_complete(control_plane, 100)
    assert bench.status()["is_drained"]


def test_a_full_spool_replaces_the_oldest_text_with_gaps(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.refuse = 503
    folder = bench.replica(
        ["bash", "-c", "for i in $(seq 8); do head -c 60000 /dev/urandom | base64 -w 100; sleep 0.3; done"]
    )
    agent = bench.start(folder, MUSTER_SPOOL_BYTES="300000")
    bench.wait_for(lambda: bench.status().get("state") == "succeeded")
    kept = sum(path.stat().st_size for path in (folder / "spool").glob("*.batch"))
    assert kept < 310_000
    control_plane.refuse = 0
    agent.wait(PATIENCE_SECONDS)
    received = control_plane.of()
    gaps, logs = received.kind("gap"), received.kind("log")
    assert gaps and logs and gaps[0]["first_line"] == 0 and gaps[0]["raw_bytes"] > 0
    pieces = sorted((one["first_line"], one["lines"]) for one in gaps + logs)
    for (first, lines), (following, _) in zip(pieces, pieces[1:], strict=False):
        assert first + lines == following
    assert [one["state"] for one in received.kind("replica")] == ["running", "succeeded"]
    assert received.texts()[-1].strip() != ""


@pytest.mark.parametrize("kind", ["log", "replica", "gap"])
def test_an_item_that_is_always_refused_becomes_a_gap_and_the_rest_arrives(
    bench: Bench, control_plane: FakeControlPlane, kind: str
) -> None:
    control_plane.wrong = kind
    agent = bench.start(bench.replica(["bash", "-c", "echo one; sleep 0.5; echo two; exit 3"]))
    agent.wait(PATIENCE_SECONDS)
    received = control_plane.of()
    assert bench.status()["is_drained"]
    states = [one["state"] for one in received.kind("replica")]
    assert states == ([] if kind == "replica" else ["running", "failed"])
    assert sum(one["lines"] for one in received.kind("gap")) == (2 if kind == "log" else 0)
    assert received.texts() == ([] if kind == "log" else ["one", "two"])


def test_a_refused_batch_is_logged_once(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.wrong = "log"
    folder = bench.replica(["echo", "one"])
    bench.start(folder).wait(PATIENCE_SECONDS)
    assert (folder / "agent.log").read_text().count("was refused") == 1


def test_retry_after_of_the_control_plane_is_respected(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.refuse, control_plane.headers = 507, {"Retry-After": "30"}
    agent = bench.start(bench.replica(["sh", "-c", "while :; do echo tick; sleep 0.05; done"]))
    bench.wait_for(lambda: control_plane.refusals)
    first = control_plane.refusals
    control_plane.refuse = 0
    bench.wait_for(lambda: len(list((bench.attempt / "worker-0" / "spool").glob("*.batch"))) > 3)
    assert (
        first == 1 and control_plane.of().ack == 0
    )  # it asked for at least 15 s; the agent's own retry would come after 0.25 s
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    assert control_plane.of().texts()[0] == "tick" and bench.status()["is_drained"]


@pytest.mark.parametrize("status", [401, 403])
def test_a_closed_attempt_ends_the_replica(bench: Bench, control_plane: FakeControlPlane, status: int) -> None:
    folder = bench.replica(["sh", "-c", "while :; do echo tick; sleep 0.1; done"])
    agent = bench.start(folder)
    bench.wait_for(lambda: control_plane.of().texts())
    control_plane.refuse = status
    agent.wait(PATIENCE_SECONDS)
    assert (bench.status()["state"], bench.status()["reason"]) == ("failed", "the attempt is closed")
    assert not bench.status()["is_drained"]


def test_a_stop_command_ends_the_replica_with_its_grace_period(bench: Bench, control_plane: FakeControlPlane) -> None:
    command = ["sh", "-c", "trap 'sleep 1; echo saved; exit 7' TERM; while :; do echo tick; sleep 0.1; done"]
    agent = bench.start(bench.replica(command))
    bench.wait_for(lambda: control_plane.of().texts())
    control_plane.commands = [{"do": "dance"}, {"do": "stop"}]
    agent.wait(PATIENCE_SECONDS)
    assert (bench.status()["exit_code"], bench.status()["reason"]) == (7, "stopped by the control plane")
    assert control_plane.of().texts()[-1] == "saved"


def test_a_slow_command_reduces_the_rate_of_batches(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.commands = [{"do": "slow", "seconds": 1}]
    bench.run(numbered(400, each=10, pause=0.05))
    assert_complete(control_plane, 400)
    status = bench.status()
    assert control_plane.of().ack <= status["at"] - status["started_at"] + 4


def test_frequent_small_writes_make_few_batches(bench: Bench, control_plane: FakeControlPlane) -> None:
    bench.run(numbered(1000, each=10, pause=0.02))
    status = bench.status()
    assert control_plane.of().ack <= 4.5 * (status["at"] - status["started_at"]) + 3


def test_odd_output_arrives_as_lines(bench: Bench, control_plane: FakeControlPlane) -> None:
    script = r"printf 'a\377b\n\n'; printf '\r1%%\r2%%\r100%%\n'; printf 'x\r\n'; printf 'no end'"
    received = bench.run(["bash", "-c", script])
    assert received.texts() == ["a\ufffdb", "", "100%", "x", "no end"]


def test_a_changed_token_is_read_again(bench: Bench, control_plane: FakeControlPlane) -> None:
    folder = bench.replica(numbered(300))
    agent = bench.start(folder)
    bench.wait_for(lambda: control_plane.of().texts())
    with control_plane.lock:
        control_plane.replicas["renewed"] = control_plane.of()
        (folder / "token").write_text("renewed")
    agent.wait(PATIENCE_SECONDS)
    assert_complete(control_plane, 300)


def test_a_folder_with_an_invalid_spec_fails_at_once(bench: Bench, tmp_path: Path) -> None:
    folder = bench.replica(["true"])
    (folder / "replica.json").write_text(json.dumps({"nonsense": 1}))
    assert bench.start(folder).wait(PATIENCE_SECONDS) != 0
    assert bench.status()["state"] == "failed"


def test_a_spool_on_a_full_disk_drops_text_and_keeps_states(bench: Bench, control_plane: FakeControlPlane) -> None:
    need(os.geteuid() == 0, "mounting a small file system needs root")
    folder = bench.replica(
        ["bash", "-c", "for i in 1 2 3; do head -c 60000 /dev/urandom | base64 -w 100; sleep 0.4; done; exit 5"]
    )
    (folder / "spool").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder / "spool"], check=True)
    try:
        control_plane.refuse = 503
        agent = bench.start(folder)
        bench.wait_for(lambda: bench.status().get("state") == "failed")
        control_plane.refuse = 0
        agent.wait(PATIENCE_SECONDS)
    finally:
        subprocess.run(["umount", "-l", folder / "spool"], check=True)
    received = control_plane.of()
    assert [one["state"] for one in received.kind("replica")] == ["running", "failed"]
    pieces = sorted((one["first_line"], one["lines"]) for one in received.kind("gap") + received.kind("log"))
    assert received.kind("gap") and sum(lines for _, lines in pieces) == pieces[-1][0] + pieces[-1][1]
    assert bench.status()["exit_code"] == 5 and bench.status()["is_drained"]


def test_a_line_of_five_megabytes_arrives_in_marked_parts(bench: Bench, control_plane: FakeControlPlane) -> None:
    command = ["bash", "-c", "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo after"]
    *parts, last = bench.run(command).texts()
    assert last == "after" and len("".join(parts).replace("…", "")) == 5_000_000
    assert all(part.endswith("…") for part in parts[:-1]) and max(map(len, parts)) <= 2**20 + 1


def test_a_line_that_never_ends_takes_bounded_memory(bench: Bench, control_plane: FakeControlPlane) -> None:
    folder = bench.replica(["bash", "-c", "head -c 200000000 /dev/zero | tr '\\0' x"])
    agent = bench.start(folder)
    sizes: list[int] = []
    bench.wait_for(lambda: sizes.append(_resident_bytes(agent.pid)) or agent.poll() is not None)
    received = control_plane.of()
    told = sum(one["raw_bytes"] for one in received.kind("log") + received.kind("gap"))
    assert told >= 200_000_000
    assert max(sizes) < 160 * 2**20


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def test_colours_binary_data_and_html_arrive_unchanged(bench: Bench, control_plane: FakeControlPlane) -> None:
    script = r"printf '\033[31mred\033[0m\n<script>alert(1)</script>\n\000\001\377\n'"
    assert bench.run(["bash", "-c", script]).texts() == [
        "\033[31mred\033[0m",
        "<script>alert(1)</script>",
        "\0\1\ufffd",
    ]
