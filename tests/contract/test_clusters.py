"""The contract of every cluster adapter, on which the reconciler relies. Local replicas are real agents."""

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from common.errors import Refused, Sealed, Unreachable
from common.machine.memory import Memory
from common.machine.memory import memory as memory_of_machine
from jobs.clusters import Cluster, Expected
from jobs.clusters.local.adapter import NOW_SECONDS, LocalCluster
from jobs.clusters.local.host import Host
from jobs.clusters.memory import MemoryCluster
from jobs.clusters.replica_file import child_env
from jobs.core.attempt_ref import AttemptRef
from jobs.core.plan import FirstRank, Index, Plan, Port, Role, numbered
from jobs.core.plan import Host as HostOf
from jobs.core.verdict import ReplicaState, Seen
from queues.shape import of_resources
from tests.support.builders import Clock
from tests.support.patience import PATIENCE_SECONDS, until

EXPECTED = [("worker", 0), ("worker", 1)]
REF = AttemptRef("7-abc", 1)  # what `plan` launches
SLEEP = ("sh", "-c", "echo up; sleep 60 & wait")


def role(*command: str) -> Role:
    env = {"NUMBER": Index(), "ADDRESS": HostOf("worker", 0), "PORT": Port("rendezvous", 29500)}
    return Role("worker", 2, 1, command or SLEEP, env)


def plan(*command: str, attempt: int = 1, grace_seconds: int = 3) -> Plan:
    return Plan(
        "7-abc",
        attempt,
        (role(*command),),
        secrets={"worker-0": "worker-0", "worker-1": "worker-1"},
        grace_seconds=grace_seconds,
    )


TWO_ROLES = [("worker", 0), ("worker", 1), ("helper", 0)]


def two_roles() -> Plan:
    """Workers as above, and a helper with a shape, an image and ranks of its own."""
    helper = Role(
        "helper", 1, 1, SLEEP, {"NUMBER": FirstRank(), "PLACE": Index(2), "ADDRESS": HostOf("worker", 0), "PORT": Port("rendezvous", 29500)},
        completes=False, devices=0, shape=replace(of_resources(cpu="250m", memory="64Mi"), image="registry.example/helper:1"),
        is_rank=True,
    )  # fmt: skip
    return replace(
        plan(),
        roles=numbered(role(), helper),
        secrets={f"{name}-{index}": f"{name}-{index}" for name, index in TWO_ROLES},
    )


def anew() -> Plan:
    """A plan that replaces the second replica."""
    key = ("worker", 1)
    return replace(plan(), incarnations={key: 1}, wanted=frozenset({key}), secrets={"worker-1": "worker-1.1"})


@dataclass
class Rig:
    cluster: Cluster
    killer: Callable[[int], None]
    succeed: tuple[str, ...] = ("true",)
    fail: tuple[str, ...] = ("sh", "-c", "exit 3")

    def look(self, attempt: int = 1, *, expected: Expected = EXPECTED) -> Seen:
        return self.cluster.observe(AttemptRef("7-abc", attempt), expected)

    def until(
        self, what, attempt: int = 1, seconds: float = PATIENCE_SECONDS, *, expected: Expected = EXPECTED
    ) -> Seen:
        """The first observation for which `what` holds. The time limit only guards against hanging."""
        end = time.monotonic() + seconds
        while not what(seen := self.look(attempt, expected=expected)):
            assert time.monotonic() < end, seen
            time.sleep(0.05)
        return seen

    def lose(self, index: int) -> None:
        """Make one replica of the first attempt vanish without a report."""
        self.killer(index)

    def end(self, attempt: int = 1, *, expected: Expected = EXPECTED) -> None:
        def gone(seen: Seen) -> bool:
            self.cluster.delete(AttemptRef("7-abc", attempt), 3)
            return not any(one.is_alive for one in seen.replicas)

        self.until(gone, attempt, expected=expected)


def all_in(*states: str):
    return lambda seen: all(one.state in states for one in seen.replicas)


@pytest.fixture
def local(tmp_path, pyz, control_plane):
    cluster = LocalCluster(str(tmp_path / "local"), host=Host(pyz))
    cluster.write_control(control_plane.url)

    def kill(index: int) -> None:
        place = cluster.root / f"jobs/7-abc/1/worker-{index}"
        os.kill(json.loads((place / "agent.json").read_text())["pid"], signal.SIGKILL)

    rig = Rig(cluster, kill)
    yield rig
    for attempt in (1, 2):
        rig.end(attempt)
    assert Host(pyz).carriers("7-abc-1", "worker-0") == []
    assert Host(pyz).carriers("7-abc-1", "worker-1.1") == []


@pytest.fixture
def memory():
    clock = Clock()
    cluster = MemoryCluster(clock.seconds, start_seconds=0, run_seconds=1e9)
    return Rig(cluster, lambda index: cluster.lose("7-abc", 1, "worker", index=index))


@pytest.fixture(params=["local", "memory"])
def rig(request) -> Rig:
    return request.getfixturevalue(request.param)


def test_replicas_never_created_are_absent(rig):
    assert all_in("absent")(rig.look())
    assert not rig.look().is_sealed


def test_replicas_run_after_apply(rig):
    rig.cluster.apply(plan())
    seen = rig.until(all_in("running"))
    assert all(one.is_alive for one in seen.replicas)


def test_apply_is_idempotent(rig):
    rig.cluster.apply(plan())
    rig.until(all_in("running"))
    rig.cluster.apply(plan())
    assert all_in("running")(rig.look())
    if isinstance(rig.cluster, MemoryCluster):
        assert len(rig.cluster.creations) == 2


def test_replicas_of_two_roles_run_and_end_together(rig):
    rig.cluster.apply(two_roles())
    rig.until(all_in("running"), expected=TWO_ROLES)
    assert {(one.role, one.index) for one in rig.look(expected=TWO_ROLES).replicas} == set(TWO_ROLES)
    rig.end(expected=TWO_ROLES)
    assert not any(one.is_alive for one in rig.look(expected=TWO_ROLES).replicas)


def test_delete_ends_every_replica(rig):
    rig.cluster.apply(plan())
    rig.until(all_in("running"))
    rig.end()
    seen = rig.look()
    assert seen.is_sealed
    assert not any(one.is_alive for one in seen.replicas)


def test_a_deleted_attempt_cannot_be_created_again(rig):
    rig.cluster.apply(plan())
    rig.until(all_in("running"))
    rig.end()
    with pytest.raises(Sealed):
        rig.cluster.apply(plan())


def test_deleting_an_attempt_prevents_its_later_creation(rig):
    rig.cluster.delete(REF, 3)
    assert rig.look().is_sealed
    with pytest.raises(Sealed):
        rig.cluster.apply(plan())
    assert all_in("absent")(rig.look())


STUBBORN = ("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")


def test_immediate_delete_ends_a_running_grace_period(rig):
    if isinstance(rig.cluster, MemoryCluster):
        rig.cluster.stop_seconds = 3600
    rig.cluster.apply(plan(*STUBBORN, grace_seconds=3600))
    rig.until(all_in("running"))
    rig.cluster.delete(REF, 3600)

    def is_gone(seen: Seen) -> bool:
        rig.cluster.delete(REF, 3600, is_now=True)
        return seen.is_sealed and not any(one.is_alive for one in seen.replicas)

    rig.until(is_gone)


def test_attempts_of_one_job_are_independent(rig):
    rig.cluster.apply(plan())
    rig.until(all_in("running"))
    rig.end()
    rig.cluster.apply(plan(attempt=2))
    rig.until(all_in("running"), attempt=2)
    assert not any(one.is_alive for one in rig.look().replicas)


def test_delete_is_idempotent(rig):
    rig.cluster.apply(plan())
    rig.end()
    rig.end()


def test_replacing_a_lost_replica_leaves_the_others_running(rig):
    rig.cluster.apply(plan())
    before = rig.until(all_in("running"))
    rig.lose(1)

    def is_free(seen: Seen) -> bool:
        rig.cluster.end_replicas(REF, [("worker", 1)], 3)
        return not seen.replicas[1].is_alive and seen.replicas[1].state in ("lost", "failed", "absent")

    assert rig.until(is_free).replicas[0].state == "running"
    rig.cluster.apply(anew())
    seen = rig.until(all_in("running"))
    assert [one.incarnation for one in seen.replicas] == [0, 1]
    assert seen.replicas[0] == before.replicas[0]
    assert not seen.is_sealed
    rig.cluster.apply(anew())  # applying twice changes nothing
    assert rig.until(all_in("running")).replicas[1].incarnation == 1


def test_apply_leaves_running_replicas_as_they_are(rig):
    rig.cluster.apply(plan())
    rig.until(all_in("running"))
    rig.lose(1)
    rig.until(lambda seen: rig.cluster.end_replicas(REF, [("worker", 1)], 3) or not seen.replicas[1].is_alive)
    rig.cluster.apply(anew())
    rig.until(all_in("running"))
    rig.cluster.apply(replace(anew(), wanted=frozenset({("worker", 0)})))  # it has nothing to create
    assert [one.incarnation for one in rig.until(all_in("running")).replicas] == [0, 1]


def test_delete_ends_replacements_too(rig):
    rig.cluster.apply(plan())
    rig.until(all_in("running"))
    rig.lose(1)
    rig.until(lambda seen: rig.cluster.end_replicas(REF, [("worker", 1)], 3) or not seen.replicas[1].is_alive)
    rig.cluster.apply(anew())
    rig.until(all_in("running"))
    rig.end()
    assert rig.look().is_sealed
    assert not any(one.is_alive for one in rig.look().replicas)
    with pytest.raises(Sealed):
        rig.cluster.apply(anew())


def test_open_attempts_are_listed_until_closed(rig):
    rig.cluster.apply(plan())
    rig.until(all_in("running"))
    until(lambda: AttemptRef("7-abc", 1, rig.cluster.namespace) in rig.cluster.open_attempts())
    rig.end()

    def is_closed() -> bool:
        rig.cluster.delete(REF, 3)
        return rig.cluster.open_attempts() == []

    until(is_closed)


def test_a_reference_without_a_namespace_is_of_the_clusters_own(rig):
    """An attempt of an older release has no row that names it, and no other namespace was in use then."""
    rig.cluster.apply(plan())
    named = REF.within(rig.cluster.namespace)
    rig.until(lambda seen: all_in("running")(rig.cluster.observe(named, EXPECTED)))
    until(lambda: rig.cluster.open_attempts() == rig.cluster.open_attempts(rig.cluster.namespace) == [named])
    rig.cluster.delete(named, 3)
    rig.end()
    with pytest.raises(Sealed):
        rig.cluster.apply(plan())
    with pytest.raises(Sealed):
        rig.cluster.apply(replace(plan(), namespace=rig.cluster.namespace))


def test_changes_name_the_job_that_changed(rig):
    changes = rig.cluster.changes()
    rig.cluster.apply(plan())
    end = time.monotonic() + PATIENCE_SECONDS
    while next(changes) != "7-abc":
        assert time.monotonic() < end


def test_an_attempt_stays_in_its_namespace_when_the_setting_changes(memory):
    """With pods: tests/cluster/api/test_namespaces.py. The fake behaves likewise, for tests of what calls it."""
    cluster, old = memory.cluster, REF.within("old")
    cluster.namespace = "old"
    cluster.apply(plan())
    cluster.namespace = "new"
    assert all_in("running")(cluster.observe(old, EXPECTED)) and all_in("absent")(memory.look())
    assert (cluster.open_attempts("old"), cluster.open_attempts()) == ([old], [])
    cluster.end_replicas(old, [("worker", 1)], 3)
    cluster.delete(old, 3)
    assert cluster.open_attempts("old") == [] and cluster.observe(old, EXPECTED).is_sealed
    assert not memory.look().is_sealed
    cluster.apply(plan(attempt=2))
    assert cluster.open_attempts() == [AttemptRef("7-abc", 2, "new")]


# -- behavior that only real processes can show


def test_ended_replicas_are_reported_with_their_exit_codes(local):
    local.cluster.apply(plan("sh", "-c", "exit $((NUMBER * 3))"))
    seen = local.until(lambda seen: not any(one.is_alive for one in seen.replicas))
    assert [(one.state, one.exit_code) for one in seen.replicas] == [("succeeded", 0), ("failed", 3)]


def test_placeholders_in_the_environment_are_replaced_by_values(local, tmp_path):
    out = tmp_path / "out"
    local.cluster.apply(plan("sh", "-c", f"echo $NUMBER $ADDRESS $PORT > {out}.$NUMBER"))
    local.until(all_in("succeeded"))
    zero, one = Path(f"{out}.0").read_text().split(), Path(f"{out}.1").read_text().split()
    assert (zero[:2], one[:2]) == (["0", "127.0.0.1"], ["1", "127.0.0.1"])
    assert zero[2] == one[2]


def test_a_volume_is_one_folder_shared_by_all_jobs_of_a_team(local, tmp_path):
    write, read = "echo here > $MUSTER_VOLUME_DATA/note-$NUMBER", f"cat $MUSTER_VOLUME_DATA/note-0 > {tmp_path}/read"
    for attempt, text in ((1, write), (2, read)):
        local.cluster.apply(replace(plan("sh", "-c", text, attempt=attempt), team="nlp", volumes={"data": ""}))
        local.until(all_in("succeeded"), attempt=attempt)
    assert (tmp_path / "read").read_text() == "here\n"


def test_the_control_planes_secrets_do_not_reach_a_rank(local, tmp_path, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://hidden")
    out = tmp_path / "env"
    local.cluster.apply(plan("sh", "-c", f"env > {out}.$NUMBER"))
    local.until(all_in("succeeded"))
    text = Path(f"{out}.0").read_text()
    assert "postgres://hidden" not in text
    assert "MUSTER_SECRET_KEY" not in text
    assert "MUSTER_JOB=7-abc" in text


def test_a_job_inherits_training_variables_and_not_the_environment_of_the_server(local, tmp_path, monkeypatch):
    """The names of credentials cannot be listed exhaustively, so only named variables are passed on."""
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "SSH_AUTH_SOCK",
        "KUBECONFIG",
        "HTTPS_PROXY",
        "WANDB_API_KEY",
    ):
        monkeypatch.setenv(name, f"of-the-operator-{name}")
    wanted = {
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "NCCL_DEBUG": "WARN",
        "OMP_NUM_THREADS": "3",
        "LD_LIBRARY_PATH": "/opt/lib",
    }
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
    local.cluster.apply(plan("sh", "-c", f"env > {tmp_path}/env.$NUMBER"))
    local.until(all_in("succeeded"))
    text = (tmp_path / "env.0").read_text()
    assert "of-the-operator" not in text
    assert {f"{name}={value}" for name, value in wanted.items()} <= set(text.splitlines())


GPU = {"resource": "gpu"}


def seen_devices(local, run: str = "7-abc") -> list[str]:
    """CUDA_VISIBLE_DEVICES of each replica of the first attempt."""
    places = sorted((local.cluster.root / f"jobs/{run}/1").glob("worker-*/replica.json"))
    return [json.loads(path.read_text())["env"]["CUDA_VISIBLE_DEVICES"] for path in places]


def test_each_replica_sees_its_own_gpu_and_no_live_attempt_shares_one(local, tmp_path):
    local.cluster.inventory = lambda: ["0", "1", "GPU-c", "3"]
    script = f"echo $CUDA_VISIBLE_DEVICES > {tmp_path}/seen.$NUMBER; sleep 60 & wait"
    local.cluster.apply(replace(plan("sh", "-c", script), **GPU))
    local.until(all_in("running"))
    until(lambda: (tmp_path / "seen.1").exists() and (tmp_path / "seen.0").exists())
    assert seen_devices(local) == ["0", "1"]
    # Another process of the control plane, which shares only the files.
    restarted = LocalCluster(str(local.cluster.root), host=local.cluster.host, inventory=lambda: ["0", "1", "GPU-c"])
    restarted.apply(replace(plan("sh", "-c", script), **GPU))
    other = replace(plan(), run="8-xyz", **GPU)
    with pytest.raises(Unreachable, match="free are 1 of 3, the others are held by 7-abc-1"):
        restarted.apply(other)
    local.end()
    restarted.apply(other)
    assert seen_devices(local, "8-xyz") == ["0", "1"]
    until(
        lambda: (
            restarted.delete(AttemptRef("8-xyz", 1), 3)
            or not any(one.is_alive for one in restarted.observe(AttemptRef("8-xyz", 1), EXPECTED).replicas)
        )
    )
    assert (tmp_path / "seen.0").read_text() == "0\n"


def test_a_job_without_gpus_sees_none_even_if_its_environment_names_some(local):
    local.cluster.inventory = lambda: ["0", "1"]
    local.cluster.apply(replace(plan(), resource="cpu", env={"CUDA_VISIBLE_DEVICES": "0,1"}))
    assert seen_devices(local) == ["", ""]


@pytest.mark.parametrize(
    ("mib", "total", "slots"), [(1024, 24 << 30, 24), (1024, 512 << 20, 1), (64, 1 << 40, None), (0, 1 << 30, 0)]
)
def test_a_machine_bears_as_many_slots_as_it_has_memory_for(local, settings, mib, total, slots):
    settings.MUSTER_LOCAL_SLOT_MIB = mib
    local.cluster.memory = lambda: Memory(total, total // 2)
    expected = 16 * (os.cpu_count() or 1) if slots is None else slots
    room = local.cluster.room()
    assert (room is None) == (mib == 0)
    assert room is None or (room.slots, room.free) == (expected, (total // 2) // (mib << 20))


def test_the_memory_of_this_machine_is_read():
    found = memory_of_machine()
    assert 1 << 28 < found.available <= found.total


def test_more_gpus_than_the_machine_has_are_refused_before_and_at_launch(local):
    local.cluster.inventory = lambda: ["0"]
    many = [Role("worker", 2, 1, ("true",))]
    problem = local.cluster.placement(many, resource="gpu", node_slots=0).problem
    assert problem is not None and "2 x 1 of worker need a GPU each, and this machine has 1" in problem.message
    assert local.cluster.placement(many, resource="cpu", node_slots=0).problem is None
    with pytest.raises(Refused, match="needs 2 GPUs, and this machine has 1"):
        local.cluster.apply(replace(plan(), **GPU))


HUSH = {"env": {"API_KEY": "hush-hush"}}


def secrets_below(root: Path) -> list[str]:
    """Files that hold the job's secret or an agent's token."""
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return sorted(
        str(path.relative_to(root)) for path in files if b"hush-hush" in path.read_bytes() or path.name == "token"
    )


def test_an_ended_replica_keeps_neither_secrets_nor_its_token(local):
    local.cluster.apply(replace(plan("true"), **HUSH))
    assert secrets_below(local.cluster.root)
    local.until(all_in("succeeded"))
    local.end()
    local.cluster.delete(REF, 3)  # as the next sweep does if the last observation was too early
    assert secrets_below(local.cluster.root) == []
    assert json.loads((local.cluster.root / "jobs/7-abc/1/worker-0/replica.json").read_text())["command"] == ["true"]


def test_a_job_that_removes_its_token_leaves_no_secret_behind(local):
    local.cluster.apply(replace(plan("sh", "-c", "rm ../token"), **HUSH))
    local.until(all_in("succeeded"))
    local.end()
    local.cluster.delete(REF, 3)
    assert secrets_below(local.cluster.root) == []


def test_secrets_are_kept_while_lines_remain_to_be_sent(local, control_plane):
    local.cluster.apply(replace(plan(*TALKS), **HUSH))
    local.until(lambda seen: all_in("running")(seen) and len(control_plane.of("worker-0").texts()) > 3)
    control_plane.down()
    place = local.cluster.root / "jobs/7-abc/1/worker-0"
    local.until(lambda seen: len(list((place / "spool").glob("*.batch"))) > 2)
    local.lose(0)
    local.until(lambda seen: seen.replicas[0].state is ReplicaState.LOST)
    local.cluster.delete(REF, 3)
    assert (place / "token").exists()  # needed to send the rest
    control_plane.up()
    local.end()
    local.cluster.delete(REF, 3)
    assert secrets_below(local.cluster.root) == []


def test_secrets_of_attempts_ended_before_an_update_are_removed_at_the_next_start(local):
    local.cluster.apply(replace(plan("true"), **HUSH))
    local.until(all_in("succeeded"))
    local.end()
    place = local.cluster.root / "jobs/7-abc/1/worker-1"
    (place / "replica.json").write_text(json.dumps({"run": "7-abc", **HUSH}))
    (place / "token").write_text("worker-1")
    theirs = local.cluster.root / "jobs/7-abc/shared/checkpoints/token"  # a file of the job, in spite of its name
    theirs.parent.mkdir()
    theirs.write_text("words")
    next(local.cluster.changes())
    assert theirs.read_text() == "words"
    theirs.unlink()
    assert secrets_below(local.cluster.root) == []


def test_the_operator_can_add_variables_but_never_the_servers_own():
    given = {"WANDB_API_KEY": "w", "HF_HOME": "/hf", "HTTPS_PROXY": "p", "MUSTER_SECRET_KEY": "k", "DATABASE_URL": "d"}
    more = ("WANDB_*", "HF_HOME", "MUSTER_*", "DATABASE_URL")
    assert child_env(given, more) == {"WANDB_API_KEY": "w", "HF_HOME": "/hf"}


def test_a_killed_agent_is_a_loss_and_its_remaining_processes_are_ended(local):
    local.cluster.apply(plan())
    local.until(all_in("running"))
    place = local.cluster.root / "jobs/7-abc/1/worker-0"
    os.kill(json.loads((place / "agent.json").read_text())["pid"], signal.SIGKILL)
    seen = local.until(lambda seen: seen.replicas[0].state is ReplicaState.LOST)
    assert seen.replicas[1].state is ReplicaState.RUNNING
    local.end()
    assert local.cluster.host.carriers("7-abc-1", "worker-0") == []


TALKS = ("sh", "-c", "n=0; while :; do echo line $n; n=$((n+1)); sleep 0.05; done")


def test_unsent_lines_of_a_killed_agent_are_sent_before_its_attempt_is_closed(local, control_plane):
    """The control plane goes down, the agent is killed, and then the control plane comes back."""
    local.cluster.apply(plan(*TALKS))
    local.until(lambda seen: all_in("running")(seen) and len(control_plane.of("worker-0").texts()) > 3)
    place = local.cluster.root / "jobs/7-abc/1/worker-0"
    control_plane.down()
    before = len(control_plane.of("worker-0").texts())
    local.until(lambda seen: len(list((place / "spool").glob("*.batch"))) > 2)
    os.kill(json.loads((place / "agent.json").read_text())["pid"], signal.SIGKILL)
    local.until(lambda seen: seen.replicas[0].state is ReplicaState.LOST)
    for _ in range(3):
        local.cluster.delete(REF, 3)
        assert local.look().replicas[0].is_alive  # it still has lines to send
    control_plane.up()
    local.end()
    assert not list((place / "spool").glob("*.batch"))
    numbers = [int(text.split()[1]) for text in control_plane.of("worker-0").texts()]
    assert len(numbers) > before
    assert numbers == list(range(len(numbers)))
    assert json.loads((place / "drain.json").read_text())["tries"] == 1  # one drain process was enough for all requests


def test_undeliverable_lines_do_not_keep_an_attempt_open_forever(local, control_plane):
    local.cluster.apply(plan(*TALKS))
    local.until(all_in("running"))
    place = local.cluster.root / "jobs/7-abc/1/worker-0"
    control_plane.refuse = 403  # the attempt is closed for this agent: its remaining batches are given up
    local.end()
    assert (place / "undeliverable").exists()
    assert list((place / "spool").glob("*.batch"))  # kept for inspection


def test_any_process_can_reconcile_an_attempt(local, pyz):
    local.cluster.apply(plan())
    local.until(all_in("running"))
    other = replace(local, cluster=LocalCluster(str(local.cluster.root), host=Host(pyz)))
    assert all_in("running")(other.look())
    other.end()


def test_a_crash_between_spawning_and_recording_starts_no_second_agent(local):
    local.cluster.apply(plan())
    local.until(all_in("running"))
    place = local.cluster.root / "jobs/7-abc/1/worker-0"
    (place / "spawned.json").unlink()  # as if the spawner had died before writing it
    before = (place / "agent.json").read_text()
    local.cluster.apply(plan())
    assert (place / "agent.json").read_text() == before
    assert all_in("running")(local.look())


def test_the_lock_of_a_stopped_process_does_not_block_the_adapter(local, monkeypatch):
    monkeypatch.setattr("jobs.clusters.local.adapter.LOCK_SECONDS", 0.1)
    local.cluster.apply(plan())
    with open(local.cluster.root / "jobs/7-abc/1/lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unreachable, match="held the attempt's lock"):
            local.cluster.apply(plan())
        local.cluster.delete(REF, 3)
        assert local.look().is_sealed


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(local):
    local.cluster.apply(plan("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", grace_seconds=1))
    local.until(all_in("running"))
    local.end()
    assert local.cluster.host.carriers("7-abc-1", "worker-0") == []


def test_an_agent_that_ignores_an_immediate_stop_is_killed(local):
    """The agent is stopped, so only SIGKILL has an effect; the request is older than the limit."""
    local.cluster.apply(plan(*STUBBORN, grace_seconds=3600))
    local.until(all_in("running"))
    place = local.cluster.root / "jobs/7-abc/1/worker-0"
    os.kill(json.loads((place / "agent.json").read_text())["pid"], signal.SIGSTOP)
    for name in ("stop_asked", "stop_now"):
        (place / name).write_text(str(time.time() - NOW_SECONDS - 1))
    local.cluster.delete(REF, 3600, is_now=True)
    local.until(lambda seen: seen.replicas[0].state is ReplicaState.LOST)
    local.end()
    assert local.cluster.host.carriers("7-abc-1", "worker-0") == []


def test_a_command_that_does_not_exist_is_named(local):
    local.cluster.apply(plan("trian-it"))
    seen = local.until(all_in("failed"))
    assert seen.replicas[0].exit_code == 127
    assert "trian-it" in seen.replicas[0].reason


def test_a_stopped_agent_ends_within_its_grace(local):
    """A stopped agent does not react to SIGTERM and would be killed only after the agent's whole grace period."""
    local.cluster.apply(plan(grace_seconds=3600))
    local.until(lambda seen: all(one.state is ReplicaState.RUNNING for one in seen.replicas))
    folder = local.cluster.root / "jobs" / "7-abc" / "1" / "worker-0"
    agent = json.loads((folder / "agent.json").read_text())["pid"]
    os.kill(agent, signal.SIGSTOP)
    local.until(lambda _: Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[0] == "T")

    def is_gone(seen: Seen) -> bool:
        local.cluster.delete(REF, 3600)
        return not any(one.is_alive for one in seen.replicas)

    local.until(is_gone)
