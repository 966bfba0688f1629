"""The entry point of a pod's container, run as a process on this machine: the real start.py and agent, no kubelet."""

import base64
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from agent.pod_entry import CAN_NOT_START
from jobs.clusters.kubernetes import adapter
from jobs.clusters.kubernetes.build import labels, manifests
from jobs.clusters.kubernetes.build.site import Site
from jobs.clusters.kubernetes.facts.pods import read_pod
from jobs.core.plan import Host, Index, Plan, Port, Role
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.kube_site import site_of
from tests.support.patience import PATIENCE_SECONDS, until

WHO = 'import os; print("index", os.environ["NODE"], os.environ["KEY"], os.environ["USER"], os.getcwd())'


@pytest.fixture
def control_plane():
    control_plane = FakeControlPlane()
    control_plane.up()
    yield control_plane
    control_plane.down()


@dataclass
class Pod:
    """Lays out a pod's volumes as the kubelet would, from the manifests, and runs its container's command."""

    folder: Path
    pyz: Path
    site: Site
    said: dict[str, str] = field(default_factory=dict)  # additional environment variables
    env: dict[str, str] = field(default_factory=dict)  # of the last run

    def run(self, plan: Plan, index: int = 1) -> subprocess.CompletedProcess[str]:
        made = manifests.pod(plan, plan.roles[0], index, site=self.site, owner="uid-1", agent="muster-agent-x")
        config = manifests.agent_config(self.pyz.read_bytes(), adapter.START.read_bytes())["binaryData"]
        secret = manifests.secret(plan, self.site, owner="uid-1")["data"]
        volumes = {one["name"]: one for one in made["spec"]["volumes"]}
        told = {one["path"]: secret[one["key"]] for one in volumes["told"]["secret"]["items"]}
        for name, content in (("agent", config), ("told", told), ("state", {})):
            (self.folder / name).mkdir()
            for file, text in content.items():
                (self.folder / name / file).write_bytes(self._moved(base64.b64decode(text)))
        (container,) = made["spec"]["containers"]
        python, script = container["command"]
        assert (python, script) == ("python3", "/muster/agent/start.py")
        self.env = self._env({one["name"]: one["value"] for one in container["env"]})
        return subprocess.run(
            [sys.executable, str(self.folder / "agent" / "start.py")], env=self.env,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def _env(self, said: dict[str, str]) -> dict[str, str]:
        """The pod's environment, with its paths moved into our folder."""
        moved = {name: value.replace("/muster/", f"{self.folder}/") for name, value in said.items()}
        places = {"TOLD": "told", "STATE": "state", "MESSAGE": "message", "APP": "app"}
        return {
            **moved,
            "PATH": os.defpath,
            **{f"MUSTER_{name}": str(self.folder / file) for name, file in places.items()},
            **self.said,
        }

    def _moved(self, content: bytes) -> bytes:
        return content.replace(b'"/muster/', f'"{self.folder}/'.encode()) if content[:1] == b"{" else content


@pytest.fixture
def pod(tmp_path, pyz, control_plane) -> Pod:
    return Pod(tmp_path, pyz, site_of(CONTROL_URL=control_plane.url))


def plan(*command: str) -> Plan:
    env = {"NODE": Index(), "HOST": Host("worker", 0), "PORT": Port("rendezvous", 29500)}
    tokens = {"worker-0": "worker-0", "worker-1": "worker-1"}
    return Plan("7-abc", 1, (Role("worker", 2, 1, command, env),), env={"KEY": "secret"}, secrets=tokens)


def test_the_command_runs_under_the_agent_and_reports_as_its_replica(pod, control_plane):
    done = pod.run(plan(sys.executable, "-c", WHO))
    assert done.returncode == 0, done.stderr
    assert [one["state"] for one in control_plane.replicas["worker-1"].kind("replica")] == ["running", "succeeded"]
    assert control_plane.replicas["worker-1"].texts() == [f"index 1 secret muster {pod.folder}/state/worker-1/code"]
    assert "index 1 secret" in done.stdout, "what ranks print is mirrored to the container's own log"


def test_the_code_is_also_found_where_images_have_theirs(pod, control_plane):
    where = 'import os, pathlib; print(os.path.samefile(os.environ["MUSTER_APP"], ".")); pathlib.Path("made").write_text("x")'
    assert pod.run(plan(sys.executable, "-c", where)).returncode == 0
    assert control_plane.replicas["worker-1"].texts() == ["True"]
    assert (pod.folder / "app" / "made").read_text() == "x"


@pytest.mark.parametrize("kind", ["a folder", "a file", "a link", "a root that cannot be written"])
def test_what_an_image_has_there_is_never_replaced(pod, kind, tmp_path):
    app, other = tmp_path / "app", tmp_path / "other"
    other.mkdir()
    match kind:
        case "a folder":
            app.mkdir()
        case "a file":
            app.write_text("x")
        case "a link":
            app.symlink_to(other)
        case _:
            pod.said["MUSTER_APP"] = "/proc/app"
    assert pod.run(plan("true")).returncode == 0
    assert (app.is_dir(), app.is_file(), app.is_symlink()) == (
        kind in ("a folder", "a link"), kind == "a file", kind == "a link",
    )  # fmt: skip
    assert not app.is_symlink() or app.readlink() == other


def test_code_that_cannot_be_fetched_is_reported_with_the_address(pod, control_plane, monkeypatch):
    monkeypatch.setattr(manifests, "GIVE_UP_SECONDS", 1)
    control_plane.down()
    done = pod.run(plan("true"))
    assert done.returncode == CAN_NOT_START
    said = (pod.folder / "message").read_text()
    assert said.startswith(f"the workspace cannot be fetched: no answer from {control_plane.url}")
    found = read_pod({
        "metadata": {"name": "7-abc-1-worker-1", "uid": "u", "labels": labels.of_replica("7-abc", 1, "worker", 1, owner="o")},
        "status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 78, "message": said}}}]},
    })  # fmt: skip
    assert found.reason == said.strip(), "and that is the replica's reason"


def test_a_job_without_code_runs_while_the_control_plane_is_unreachable(pod, control_plane):
    control_plane.down()
    pod.said["MUSTER_DRAIN_SECONDS"] = "1"
    done = pod.run(replace(plan(sys.executable, "-c", WHO), has_code=False))
    assert done.returncode == 0, done.stderr
    assert "index 1 secret" in done.stdout


def test_the_commands_exit_code_is_the_containers(pod):
    assert pod.run(plan("sh", "-c", "exit 7")).returncode == 7


def test_unsent_lines_of_a_killed_agent_are_sent_by_another(pod, control_plane, tmp_path):
    kills = "import json, os, sys, time; print('the last words', flush=True); os.kill(json.load(open(sys.argv[1]))['pid'], 9); time.sleep(60)"
    agent = tmp_path / "state/worker-1/agent.json"
    assert pod.run(plan(sys.executable, "-c", kills, str(agent))).returncode == 128 + signal.SIGKILL
    assert control_plane.replicas["worker-1"].texts() == ["the last words"]
    assert json.loads((agent.parent / "status.json").read_text())["is_drained"]


def test_a_container_that_is_started_again_only_waits_for_its_pods_end(pod, tmp_path):
    runs = tmp_path / "runs"
    assert pod.run(plan("sh", "-c", f"echo once >> {runs}; exit 7")).returncode == 7
    again = subprocess.Popen([sys.executable, str(tmp_path / "agent/start.py")], env=pod.env)
    until(lambda: _awaits_a_signal(again.pid))
    again.terminate()
    assert (again.wait(PATIENCE_SECONDS), runs.read_text()) == (0, "once\n")


def _awaits_a_signal(pid: int) -> bool:
    return "sigtimedwait" in Path(f"/proc/{pid}/wchan").read_text()  # its mask shows nothing: the kernel lifts it there


def test_the_token_is_readable_only_by_its_user(pod):
    pod.run(plan("true"))
    assert (pod.folder / "state/worker-1/token").stat().st_mode & 0o777 == 0o600


def test_an_unwritable_job_folder_is_reported_before_anything_runs(pod, control_plane, tmp_path):
    (tmp_path / "job").write_text("a file stands where the folder should be")
    pod.site = replace(pod.site, job_claim="scratch")
    done = pod.run(plan("true"))
    assert done.returncode == CAN_NOT_START
    assert "the job folder" in (tmp_path / "message").read_text() and control_plane.replicas == {}


def test_the_control_planes_own_ca_is_trusted_in_addition_to_public_ones(pod, tmp_path):
    pod.site = replace(pod.site, control_ca="-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n")
    out = tmp_path / "out"
    assert pod.run(plan("sh", "-c", f"cat $SSL_CERT_FILE > {out}")).returncode == 0
    bundle = out.read_text()
    assert "\nours\n" in bundle and len(bundle) > len(pod.site.control_ca), "the public ones are in it too"
