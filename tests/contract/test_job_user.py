"""As root, local jobs run as another user: what that user can access, and how Muster handles folders it can write to."""

import fcntl
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from agent.build import build
from common.errors import Refused
from common.machine import job_user, trees
from common.machine.job_user import BadJobUser, JobUser
from embedded import EmbeddedError, account, local_home
from embedded.agents import end_agents, living
from embedded.files import read_json
from embedded.home import BELONGS_TO, homes, remove_home
from embedded.local_home import find_local_home, remove_local_home
from embedded.processes import send
from jobs.clusters.local import drain, handed, host
from jobs.clusters.local.adapter import LocalCluster
from jobs.clusters.local.host import Host, Identity
from jobs.core.verdict import ReplicaState
from tests.contract.test_clusters import REF, Rig, all_in, plan
from tests.support.machine import need
from tests.support.patience import until

ROOT = Path(__file__).resolve().parents[2]
USER = JobUser("muster-55911", 55911, 55911)  # no account has this number
TOUCHES = "id -u > $MUSTER_SHARED/who; env > $MUSTER_SHARED/env; touch $MUSTER_SHARED/here.$NUMBER"


@pytest.fixture
def place():
    """A folder that every user may traverse, unlike pytest's own."""
    need(os.geteuid() == 0, "only root can start processes as another user")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def cluster(place, control_plane):
    found = cluster_in(place, USER)
    found.write_control(control_plane.url)
    yield found
    for attempt in (1, 2):
        Rig(found, lambda index: None).end(attempt)


def cluster_in(place: Path, user: JobUser | None) -> LocalCluster:
    pyz = build(place / "agent.pyz")
    return LocalCluster(str(place / "local"), host=Host(pyz, home=place / "local/home"), user=user)


def signal_agents(cluster: LocalCluster, number: int) -> list[Identity]:
    """Signal the agents and drain processes of all replicas; one may end while the others are signalled."""
    agents = list(living(cluster.root))
    for agent in agents:
        send(agent, number=number)
    return agents


def run(cluster: LocalCluster, script: str, **changes) -> Path:
    """Run a job to its end; return its shared folder."""
    cluster.apply(replace(plan("sh", "-c", script), **changes))
    Rig(cluster, lambda index: None).until(all_in("succeeded"), changes.get("attempt", 1))
    return cluster.root / "jobs/7-abc/shared"


def test_a_job_runs_as_the_job_user_in_folders_of_its_own_and_reads_no_others(cluster, place):
    """Its volumes and home can be written; files of the server, other jobs and the environment of others stay closed."""
    (place / "secrets.json").write_text("hush")
    (place / "secrets.json").chmod(0o600)
    spies = f"cat {place}/secrets.json; ls {cluster.root}/jobs; ls {cluster.root}/active; cat /proc/1/environ"
    script = f"{TOUCHES}; touch $MUSTER_VOLUME_DATA/x$NUMBER && touch ~/y$NUMBER && ({spies}) > $MUSTER_SHARED/said.$NUMBER 2>&1; test -s $MUSTER_SHARED/said.$NUMBER"
    shared = run(cluster, script, team="nlp", volumes={"data": ""})
    assert (shared / "who").read_text() == f"{USER.uid}\n"
    env = (shared / "env").read_text().splitlines()
    assert f"HOME={cluster.root}/home" in env and f"USER={USER.name}" in env
    assert (cluster.root / "home").stat().st_uid == USER.uid
    assert (cluster.root / "volumes/nlp/data/x1").exists() and (cluster.root / "home/y1").exists()
    said = (shared / "said.1").read_text()
    assert said.count("Permission denied") == 4, said


def test_a_job_of_another_user_is_observed_stopped_and_drained_as_usual(cluster):
    cluster.apply(plan())
    rig = Rig(cluster, lambda index: None)
    rig.until(all_in("running"))
    agent = json.loads((cluster.root / "jobs/7-abc/1/worker-0/agent.json").read_text())["pid"]
    os.kill(agent, signal.SIGKILL)
    rig.until(lambda seen: seen.replicas[0].state is ReplicaState.LOST)
    rig.end()
    assert cluster.host.carriers("7-abc-1", "worker-0") == []


def test_a_job_that_removes_its_agents_files_is_still_observed_and_ended(cluster, control_plane):
    """Such a job was considered lost and its quota freed while it kept running; with a pipe as token, its agent hung too."""
    cluster.write_control(control_plane.url)
    script = "cd ..; rm -f spawned.json agent.json token; mkfifo token; touch $MUSTER_SHARED/gone.$NUMBER; sleep 600"
    cluster.apply(plan("sh", "-c", script))
    rig = Rig(cluster, lambda index: None)
    until(lambda: len(list((cluster.root / "jobs/7-abc/shared").glob("gone.*"))) == 2)
    assert all_in("running")(rig.look())
    cluster.apply(plan("sh", "-c", script))  # as every visit does: no second agent is started
    agents = [pid for index in (0, 1) for pid in cluster.host.carriers("7-abc-1", f"worker-{index}")]
    assert len(list(living(cluster.root))) == 2
    rig.end()
    until(lambda: not any(cluster.host.carriers("7-abc-1", f"worker-{index}") for index in (0, 1)))
    assert agents


def test_a_job_that_forges_its_end_and_kills_its_agent_leaves_no_process(cluster):
    script = (
        "until grep -q running ../status.json; do sleep 0.1; done; "
        'echo \'{"state": "succeeded", "exit_code": 0}\' > ../s; mv ../s ../status.json; '
        "touch $MUSTER_SHARED/done.$NUMBER; sleep 600"
    )
    cluster.apply(plan("sh", "-c", script))
    until(lambda: len(list((cluster.root / "jobs/7-abc/shared").glob("done.*"))) == 2)
    signal_agents(cluster, signal.SIGKILL)
    Rig(cluster, lambda index: None).end()
    until(lambda: not any(cluster.host.carriers("7-abc-1", f"worker-{index}") for index in (0, 1)))


def test_pipes_in_place_of_a_replicas_files_do_not_block_cleanup(cluster, control_plane):
    """The drain of a killed agent opened the pipe and blocked forever, and so kept the attempt open."""
    names = "case $NUMBER in 0) names='status.json agent.log';; *) names='replica.json guardian.lock';; esac"
    script = (
        f"echo line; sleep 1; {names}; cd ..; rm -f $names; mkfifo $names; touch $MUSTER_SHARED/done.$NUMBER; sleep 600"
    )
    cluster.apply(plan("sh", "-c", script))
    until(lambda: len(list((cluster.root / "jobs/7-abc/shared").glob("done.*"))) == 2)
    signal_agents(cluster, signal.SIGKILL)
    Rig(cluster, lambda index: None).end()


# Of the first and of the second replica.
LINKS = [
    ("status.json token", "replica.json spool"),
    ("agent.json ../../shared/token", "undeliverable ../../shared/x"),
]


@pytest.mark.parametrize(("first", "second"), LINKS)
def test_links_with_targets_that_are_too_long_block_nothing(cluster, first, second):
    """Resolving such a link raises ENAMETOOLONG, which kept the attempt open and hid every job of the cluster."""
    names = f"case $NUMBER in 0) names='{first}';; *) names='{second}';; esac"
    links = f"for name in $names; do rm -rf $name; ln -s {'x' * 300} $name; done"
    script = f"{names}; cd ..; {links}; touch $MUSTER_SHARED/done.$NUMBER; sleep 600"
    cluster.apply(plan("sh", "-c", script))
    until(lambda: len(list((cluster.root / "jobs/7-abc/shared").glob("done.*"))) == 2)
    cluster.apply(plan("sh", "-c", script))  # as every visit does
    looks = cluster.changes()
    assert next(looks) == "7-abc"
    assert all_in("running", "pending")(Rig(cluster, lambda index: None).look()) or "status.json" in first
    agents = list(living(cluster.root))
    assert len(agents) == 2
    for agent in agents:
        send(agent, number=signal.SIGKILL)
    Rig(cluster, lambda index: None).end()
    assert not list((cluster.root / "active").iterdir())
    assert not any(cluster.host.carriers("7-abc-1", f"worker-{index}") for index in (0, 1))
    assert end_agents(cluster.root) == 0
    assert next(cluster_in(cluster.root.parent, USER).changes()) == ""


def test_files_left_by_root_are_given_to_the_job_user_at_the_next_attempt(place, control_plane):
    before = cluster_in(place, None)
    before.write_control(control_plane.url)
    shared = run(before, "mkdir -p $MUSTER_SHARED/checkpoints; echo 7 > $MUSTER_SHARED/checkpoints/step")
    Rig(before, lambda index: None).end()
    assert shared.stat().st_uid == 0
    outside = place / "outside"
    outside.write_text("ours")
    (shared / "link").symlink_to(outside)
    os.link(outside, shared / "second-name")
    after = cluster_in(place, USER)
    script = "echo 8 > $MUSTER_SHARED/checkpoints/step"
    run(after, script, attempt=2)
    Rig(after, lambda index: None).end(2)
    assert (shared / "checkpoints/step").stat().st_uid == USER.uid
    assert outside.stat().st_uid == 0  # neither a symlink nor a hard link gives away our file


def test_an_attempt_that_runs_as_root_continues_and_ends_as_root(place, control_plane):
    before = cluster_in(place, None)
    before.write_control(control_plane.url)
    before.apply(plan())
    Rig(before, lambda index: None).until(all_in("running"))
    after = cluster_in(place, USER)
    after.apply(plan())  # as every visit does
    rig = Rig(after, lambda index: None)
    assert all_in("running")(rig.look())
    assert (after.root / "jobs/7-abc/shared").stat().st_uid == 0
    rig.end()


def test_a_file_that_names_another_process_does_not_get_it_signalled(cluster):
    """A job can write to its own folder and could otherwise make root kill any process."""
    run(cluster, "true")
    victim = subprocess.Popen(["sleep", "600"])
    try:
        place = cluster.root / "jobs/7-abc/1/worker-0"
        started = int(Path(f"/proc/{victim.pid}/stat").read_text().rpartition(")")[2].split()[19])
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        for name in ("spawned.json", "agent.json"):
            (place / name).unlink(missing_ok=True)
            (place / name).write_text(json.dumps({"pid": victim.pid, "started": started, "boot": boot}))
        cluster.delete(REF, 0)
        assert victim.poll() is None
        assert victim.pid not in [one.pid for one in living(cluster.root)]
    finally:
        victim.kill()
        victim.wait()


def test_nothing_is_written_through_a_link_made_by_a_job(place):
    theirs, ours = place / "theirs", place / "ours"
    handed.give_folder(theirs, USER)
    ours.write_text("ours")
    for name in ("drain.json", "stop_asked", "agent.log"):
        (theirs / name).symlink_to(ours)
        handed.append(theirs / name, b"+")
        assert ours.read_text() == "ours", name
        handed.write(theirs / name, "1")
        assert (ours.read_text(), (theirs / name).read_text()) == ("ours", "1"), name
        assert (theirs / name).stat().st_uid == USER.uid, name


def test_a_link_a_pipe_and_a_huge_file_are_not_read(place, monkeypatch):
    monkeypatch.setattr(handed, "MAX_BYTES", 10)
    (place / "link").symlink_to("/etc/hostname")
    os.mkfifo(place / "pipe")
    (place / "huge").write_text("x" * 11)
    for name in ("link", "pipe", "huge"):
        with pytest.raises(ValueError, match=name):
            handed.read(place / name)


def test_an_agents_status_file_is_read_only_up_to_a_limit(cluster):
    """Ten replicas with status files of 8 MB, read twice a second, used most of a core."""
    cluster.apply(plan("sh", "-c", "sleep 600"))
    Rig(cluster, lambda index: None).until(all_in("running"))
    place = cluster.root / "jobs/7-abc/1/worker-0"
    status = json.loads((place / "status.json").read_text())
    os.kill(json.loads((place / "agent.json").read_text())["pid"], signal.SIGSTOP)
    (place / "status.json").write_text(json.dumps({**status, "x": "x" * handed.STATE_BYTES}))
    seen = {one.index: one.state for one in Rig(cluster, lambda index: None).look().replicas}
    assert seen == {0: ReplicaState.PENDING, 1: ReplicaState.RUNNING}
    os.kill(json.loads((place / "agent.json").read_text())["pid"], signal.SIGCONT)


def test_concurrent_threads_publish_the_agent_only_once(place):
    cluster = cluster_in(place, USER)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: cluster.prepare(), range(8)))
    assert len(list((cluster.root / "agent").iterdir())) == 1


def test_the_command_line_sends_its_token_to_no_process_of_another_user(place):
    """A local job may listen on Muster's port while Muster is down."""
    asks = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); print(s.accept()[0].recv(4096))"
    with subprocess.Popen(
        [sys.executable, "-I", "-c", asks], stdout=subprocess.PIPE, text=True, user=USER.uid, group=USER.gid
    ) as squatter:
        port = int(squatter.stdout.readline())
        login = {"url": f"http://127.0.0.1:{port}", "token": "mst_secret", "user": "admin"}
        (place / "cli.json").write_text(json.dumps({"current": "demo", "servers": {"demo": login}}))
        env = {name: value for name, value in os.environ.items() if name not in ("MUSTER_URL", "MUSTER_CONFIG")}
        told = [
            subprocess.run(
                [ROOT / "bin/muster", "jobs"],
                env={**env, "MUSTER_DATA_DIR": str(place), **more},
                capture_output=True,
                text=True,
            )
            for more in ({}, {"MUSTER_URL": login["url"]})
        ]
        squatter.terminate()
        heard = squatter.stdout.read()
    assert [one.returncode for one in told] == [1, 1]
    assert all(f"A process of user {USER.uid} listens on port {port}" in one.stderr for one in told)
    assert heard == ""


TALKS = "while :; do echo line; sleep 0.05; done"


@pytest.fixture
def owing(cluster, control_plane):
    """A replica without live processes whose agent was killed with unsent lines while the control plane was down."""
    cluster.apply(plan("sh", "-c", TALKS))
    Rig(cluster, lambda index: None).until(all_in("running"))
    place = cluster.root / "jobs/7-abc/1/worker-0"
    control_plane.down()
    until(lambda: list((place / "spool").glob("*.batch")))
    signal_agents(cluster, signal.SIGKILL)
    until(lambda: not list(living(cluster.root)))
    (cluster.root / "jobs/7-abc/1/sealed").touch()
    for name in ("worker-0", "worker-1"):
        cluster.host.kill_carriers("7-abc-1", name)
    until(lambda: not any(cluster.host.carriers("7-abc-1", name) for name in ("worker-0", "worker-1")))
    yield place
    end_agents(cluster.root)
    control_plane.down()
    control_plane.up()


def is_over(cluster) -> bool:
    cluster.delete(REF, 0)
    return not list((cluster.root / "active").iterdir())


def test_a_process_that_holds_an_agents_lock_does_not_keep_the_attempt_open(cluster, control_plane, owing):
    """A process that the job hid from Muster, and a drain.json forged by the job that names it."""
    hidden = subprocess.Popen(["sleep", "600"], user=USER.uid, group=USER.gid, extra_groups=[])
    try:
        about = {"pid": hidden.pid, "started": host.started(hidden.pid), "boot": host.boot_id()}
        (owing / "drain.json").write_text(json.dumps({"tries": 1, "first_at": 9e9, "at": 9e9, "process": about}))
        with open(owing / "agent.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            control_plane.up()
            until(lambda: is_over(cluster))
        assert hidden.poll() is None  # the forged file got no process killed
    finally:
        hidden.kill()
        hidden.wait()


def test_a_job_that_stops_its_drain_keeps_its_attempt_open_for_a_limited_time(cluster, owing):
    ahead = 0
    cluster.clock = lambda: time.time() + ahead
    stopped = []

    def stop_all() -> bool:
        stopped.extend(signal_agents(cluster, signal.SIGSTOP))
        return is_over(cluster)

    for _ in range(5):
        stop_all()
    assert stopped and not is_over(cluster)
    ahead = drain.MOST_SECONDS + 1
    for _ in range(5):
        stop_all()
    ahead = drain.ALL_SECONDS + 2
    until(stop_all)
    until(lambda: not any(cluster.host.is_alive(Identity(one.pid, one.started, one.boot)) for one in stopped))


def test_stopping_muster_ends_processes_that_still_send_lines(cluster, owing):
    until(lambda: is_over(cluster) or list(living(cluster.root)))
    assert end_agents(cluster.root) > 0
    until(lambda: not list(living(cluster.root)))
    assert list((owing / "spool").glob("*.batch"))  # for the next start


def test_stopping_muster_ends_guardians_that_a_job_stopped(cluster):
    cluster.apply(plan("sh", "-c", "sleep 600"))
    Rig(cluster, lambda index: None).until(all_in("running"))
    agents = [one.pid for one in living(cluster.root)]
    assert len(agents) == 2

    def children() -> list[psutil.Process]:
        return [child for pid in agents for child in psutil.Process(pid).children()]

    # A replica is noted as running just before its guardian and its command are started.
    until(lambda: sum(child.cmdline()[-1:] == ["sleep 600"] for child in children()) == 2)
    guardians = [child for child in children() if child.cmdline()[-1].startswith(str(cluster.root))]
    assert len(guardians) == 2
    for pid in (*(one.pid for one in guardians), *agents):
        os.kill(pid, signal.SIGSTOP)
    for pid in agents:
        os.kill(pid, signal.SIGKILL)
    end_agents(cluster.root)
    until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in guardians))


def test_a_user_without_access_to_the_cluster_folder_is_refused_with_a_remedy(place):
    place.chmod(0o700)
    with pytest.raises(Refused, match=r"user 55911, who cannot run .*MUSTER_JOB_USER=root"):
        cluster_in(place, USER).apply(plan())


def test_a_trial_run_as_the_job_user_gets_no_secret(place, monkeypatch):
    """Other processes of that user may read its environment."""
    monkeypatch.setenv("MUSTER_SECRET_KEY", "hush")
    script = "import os, sys; sys.exit('MUSTER_SECRET_KEY' in os.environ)"
    assert job_user.can_run([cluster_in(place, USER).host.python, "-I", "-c", script], USER)
    assert account.can_run(["sh", "-c", "test -z $MUSTER_SECRET_KEY"], account=account.Account("x", USER.uid, USER.gid))


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir])
def test_a_file_that_cannot_be_read_leaves_no_descriptor_open(place, put):
    put(place / "status.json")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match=r"status\.json"):
        handed.read(place / "status.json")
    assert len(os.listdir("/proc/self/fd")) == before


ODD = ["[1]", '{"pid": "x", "started": 1, "boot": ""}', '{"pid": 1e999, "started": 1, "boot": ""}', "[" * 100_000]


def test_malformed_files_of_a_job_block_neither_its_end_nor_the_stop_of_muster(cluster):
    run(cluster, "true")
    place, expected = cluster.root / "jobs/7-abc/1/worker-0", [("worker", 0), ("worker", 1)]
    until(lambda: not list(living(cluster.root)))
    os.mkfifo(cluster.root / "jobs/7-abc/shared/spawned.json")
    for name in ("spawned.json", "agent.json", "status.json", "drain.json"):
        for text in (None, *ODD):
            (place / name).unlink(missing_ok=True)
            if text is None:
                (place / name).mkdir()
            else:
                (place / name).write_text(text)
            assert list(living(cluster.root)) == []
            cluster.observe(REF, expected)
            cluster.delete(REF, 0)
            if text is None:
                (place / name).rmdir()


def test_a_job_that_holds_the_lock_of_its_attempt_is_still_ended(cluster, monkeypatch):
    monkeypatch.setattr("jobs.clusters.local.adapter.LOCK_SECONDS", 0.1)
    cluster.apply(plan("sh", "-c", "exec 9>>../../lock; flock 9; touch $MUSTER_SHARED/held.$NUMBER; sleep 600"))
    until(lambda: list((cluster.root / "jobs/7-abc/shared").glob("held.*")))
    cluster.delete(REF, 0)
    assert {path.name for path in (cluster.root / "jobs/7-abc/1").glob("*.stop_asked")} == {
        "worker-0.stop_asked",
        "worker-1.stop_asked",
    }
    Rig(cluster, lambda index: None).end()
    assert Rig(cluster, lambda index: None).look().is_sealed


def test_an_interrupted_handover_does_not_make_the_attempt_run_as_root(cluster):
    begun = cluster.root / "jobs/7-abc/1/worker-0"
    begun.mkdir(parents=True)
    shared = run(cluster, TOUCHES)
    assert (shared / "who").read_text() == f"{USER.uid}\n"
    assert begun.stat().st_uid == USER.uid


def test_the_target_of_a_volume_that_is_a_link_keeps_its_owner_and_mode(cluster, place):
    elsewhere = place / "datasets"
    elsewhere.mkdir(mode=0o755)
    (cluster.root / "volumes/nlp").mkdir(parents=True)
    (cluster.root / "volumes/nlp/data").symlink_to(elsewhere)
    run(cluster, "ls $MUSTER_VOLUME_DATA", team="nlp", volumes={"data": ""})
    assert (elsewhere.stat().st_uid, elsewhere.stat().st_mode & 0o777) == (0, 0o755)


def test_a_link_in_place_of_the_local_folder_is_refused_and_never_deleted_through(place):
    data, elsewhere = place / "data", place / "big" / "muster-local"
    data.mkdir(mode=0o700)
    elsewhere.mkdir(parents=True)
    (data / "local").symlink_to(elsewhere)
    for setting in ("", "root"):
        with pytest.raises(EmbeddedError, match="that Muster did not make"):
            find_local_home(data, setting=setting, is_temporary=True)
    remove_local_home(data)
    assert elsewhere.is_dir() and not (data / "local").exists()


# -- which user


def test_by_default_root_picks_an_unused_user_id():
    need(os.geteuid() == 0, "of root")
    found = job_user.find("")
    assert found is not None and found.uid not in {entry.pw_uid for entry in pwd.getpwall()}
    other = job_user.find("", taken={found.uid})
    assert other is not None and other.uid != found.uid
    assert job_user.find("root") is None
    assert job_user.find("nobody") == JobUser("nobody", 65534, pwd.getpwnam("nobody").pw_gid)
    assert job_user.find("60123") == JobUser("muster-60123", 60123, 60123)


@pytest.mark.parametrize(
    ("setting", "words"), [("no-such", "not a user of this machine"), ("0", "which is root"), ("99999999999", "below")]
)
def test_an_invalid_job_user_is_refused_with_a_remedy(setting, words):
    need(os.geteuid() == 0, "of root")
    with pytest.raises(BadJobUser, match=f"MUSTER_JOB_USER is {setting}.*{words}"):
        job_user.find(setting)


def test_only_root_starts_jobs_as_another_user(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert job_user.find("") is None
    with pytest.raises(BadJobUser, match="MUSTER_JOB_USER is nobody, but only root"):
        job_user.find("nobody")


# -- which folder


@pytest.fixture
def data(tmp_path):
    need(os.geteuid() == 0, "only root keeps local jobs outside the data folder")
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    yield folder
    remove_local_home(folder)
    remove_home(folder)


def test_the_job_user_can_enter_its_folder_and_each_installation_has_its_own_user(data, tmp_path):
    user = find_local_home(data, setting="", is_temporary=True)
    assert user == find_local_home(data, setting="", is_temporary=True)  # kept
    home = (data / "local").resolve()
    assert job_user.can_run(["test", "-x", home], user)
    assert not job_user.can_run(["ls", home], user)
    other = tmp_path / "other"
    other.mkdir()
    try:
        assert find_local_home(other, setting="", is_temporary=True).uid != user.uid
    finally:
        remove_local_home(other)
    remove_local_home(data)
    assert not home.exists()


def test_the_folder_of_an_existing_installation_moves_and_its_old_path_is_a_link(data):
    (data / "local/jobs/1-x/shared").mkdir(parents=True)
    with open(data / "local/jobs/1-x/shared/open", "w") as still_open:
        find_local_home(data, setting="", is_temporary=True)
        still_open.write("written meanwhile")
    assert (data / "local").is_symlink()
    assert (data / "local/jobs/1-x/shared/open").read_text() == "written meanwhile"
    find_local_home(data, setting="root", is_temporary=True)  # it stays there if jobs run as root again
    assert (data / "local/jobs/1-x/shared/open").exists()


@pytest.fixture
def data_on_another_disk():
    """tmpfs is equivalent to another disk here: a rename to it fails with EXDEV."""
    need(os.geteuid() == 0, "only root keeps local jobs outside the data folder")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        data = Path(name, "data")
        data.mkdir(mode=0o700)
        yield data
        remove_local_home(data)
        remove_home(data)


def homes_of(data: Path) -> list[Path]:
    """Return the homes that were made for this data folder; other installations come and go meanwhile."""
    return [
        home for home in homes(Path("/var/lib/muster")) if (read_json(home / BELONGS_TO) or {}).get("data") == str(data)
    ]


def test_an_existing_folder_is_copied_to_another_disk_without_its_sockets(data_on_another_disk):
    data = data_on_another_disk
    job = data / "local/jobs/1-x"
    job.mkdir(parents=True)
    (job / "log").write_text("line")
    (job / "link").symlink_to("log")
    os.mkfifo(job / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(job / "socket"))
    find_local_home(data, setting="", is_temporary=True)
    assert (data / "local").resolve().stat().st_dev != data.stat().st_dev
    assert len(homes_of(data)) == 1
    assert sorted(path.name for path in job.iterdir()) == ["link", "log"]
    assert (job / "link").read_text() == "line"


def test_a_copy_to_a_full_disk_is_refused_and_changes_nothing(data_on_another_disk, monkeypatch):
    data = data_on_another_disk
    (data / "local/jobs/1-x").mkdir(parents=True)
    (data / "local/jobs/1-x/log").write_text("line")
    monkeypatch.setattr(local_home, "FREE_BYTES", 1 << 60)
    for _ in range(2):
        with pytest.raises(EmbeddedError, match=r"MiB free and should keep.*MUSTER_JOB_USER=root"):
            find_local_home(data, setting="", is_temporary=True)
    assert not (data / "local").is_symlink()
    assert homes_of(data) == []
    assert (data / "local/jobs/1-x/log").read_text() == "line"


def test_folders_nested_too_deeply_are_reported_and_nothing_is_changed(data_on_another_disk):
    data = data_on_another_disk
    (data / "local/jobs/1-x").mkdir(parents=True)
    deep = "/".join(["d"] * 1500)
    subprocess.run(["mkdir", "-p", deep], cwd=data / "local/jobs/1-x", check=True)
    with pytest.raises(EmbeddedError, match=r"nested too deeply.*MUSTER_JOB_USER=root"):
        find_local_home(data, setting="", is_temporary=True)
    assert not (data / "local").is_symlink()
    assert homes_of(data) == []
    trees.remove(data / "local")
    assert not (data / "local").exists()
