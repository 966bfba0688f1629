"""A team's administrator sets up a queue and a volume in the browser alone and sees the pods; a file and the command make the same."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from rig import image
from rig.node import SOCKET
from rig.world import NAMESPACE
from tests.cluster.node.conftest import Pods
from tests.cluster.node.pages import opened, sign_in_first, submit_plain
from tests.support.patience import until

ROOT = Path(__file__).resolve().parents[3]
IMAGE, TEAM, PASSWORD = "muster.test/ours:2", "vision", "long-enough-for-a-test"
COMMAND = """python3 -c "
import os, pathlib, time
data = pathlib.Path('/data')
(data / (os.environ['MUSTER_JOB_NAME'] + os.environ['MUSTER_INDEX'])).write_text('here')
while not (data / 'end').exists(): time.sleep(0.1)
" """
FILE = f"""
defaults: {{image: '{IMAGE}', cpu: 100m, memory: 300Mi, shm: 64Mi, volumes: [shared], node_selector: {{kubernetes.io/os: linux}}}}
node: {{gpu_type: none}}
"""


@pytest.fixture
def page(pods: Pods) -> Iterator[Page]:
    ctr = ("ctr", "--address", SOCKET, "--namespace", "k8s.io", "images")
    pods.node.inside(*ctr, "tag", "--force", image.NAME, IMAGE)
    with opened(pods.rig.url) as page:
        yield page
    pods.node.inside(*ctr, "remove", IMAGE)


def sign_in_as_administrator_of_the_team(page: Page, pods: Pods) -> None:
    for queue in ("by-hand", "by-file"):
        pods.rig.manage("queue", queue, "--team", TEAM, "--slots", "4", "--cluster", "pods", "--member", "admin")
    first = pods.rig.manage("person", "tess", "--team", TEAM, "--role", "admin").split(" with ")[1].split(" within ")[0]
    sign_in_first(page, "tess", first, chosen=PASSWORD)


def make_the_volume(page: Page, pods: Pods) -> Path:
    """Make it in the browser, and its storage by hand, as nothing provisions any here. Return its folder."""
    page.goto(f"/teams/{TEAM}/volumes")
    page.fill("#id_name", "shared")
    page.select_option("#id_cluster", "pods")
    page.fill("#id_size", "1Gi")
    page.fill("#id_mount_path", "/data")
    page.get_by_role("button", name="Create volume").click()
    expect(page.get_by_role("link", name="shared")).to_be_visible()
    folder = pods.node.jobs / "team-volume"
    folder.mkdir()
    folder.chmod(0o777)
    spec = {
        "accessModes": ["ReadWriteMany"], "storageClassName": "", "capacity": {"storage": "1Gi"},
        "hostPath": {"path": str(folder)}, "claimRef": {"namespace": NAMESPACE, "name": f"muster-volume-{TEAM}.shared"},
    }  # fmt: skip
    answer = pods.admin.post(
        "/api/v1/persistentvolumes", json={"metadata": {"name": "storage-of-a-team"}, "spec": spec}
    )
    assert answer.status_code == 201, answer.text
    return folder


def describe_the_pods(page: Page) -> None:
    page.goto("/queues/by-hand/template")
    for name, value in (
        ("defaults_image", IMAGE), ("defaults_cpu", "100m"), ("defaults_memory", "300Mi"), ("defaults_shm", "64Mi"),
        ("defaults_volumes", "shared"), ("defaults_node_selector", "kubernetes.io/os=linux"), ("node_gpu_type", "none"),
    ):  # fmt: skip
        page.fill(f"#id_{name}", value)
    save = page.get_by_role("button", name="Save version")
    version = save.inner_text().removeprefix("Save ")
    save.click()
    expect(page.get_by_text(version, exact=True)).to_be_visible()  # a reload before it is there would race with it
    until(lambda: page.reload() and page.get_by_text("The cluster takes such pods").count())


def described(pod: dict[str, Any]) -> dict[str, Any]:
    """What a queue says of a pod, as the cluster has it."""
    spec = pod["spec"]
    (container,) = spec["containers"]
    shm = next(one for one in spec["volumes"] if one["name"] == "shm")
    claims = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in spec["volumes"] if "persistentVolumeClaim" in one}  # fmt: skip
    return {
        "image": container["image"], "resources": container["resources"], "shm": shm["emptyDir"]["sizeLimit"],
        "node_selector": spec["nodeSelector"],
        "mounts": {one["mountPath"]: claims[one["name"]] for one in container["volumeMounts"] if one["name"] in claims},
    }  # fmt: skip


@pytest.mark.full  # its parts have tests of their own in tests/browser and tests/cluster/api
def test_what_is_set_up_in_the_browser_is_what_runs_and_a_file_says_the_same(pods: Pods, page: Page, tmp_path: Path):
    sign_in_as_administrator_of_the_team(page, pods)
    folder = make_the_volume(page, pods)
    describe_the_pods(page)
    number = submit_plain(page, COMMAND, queue="by-hand")
    expect(page.get_by_text("Running", exact=True).first).to_be_visible(timeout=300_000)
    until(lambda: len(list(folder.iterdir())) == 2)
    job = pods.client.job(number)
    of_form = [described(pod) for pod in pods.of(job)]
    amounts = {"cpu": "100m", "memory": "300Mi"}
    assert of_form[0] == of_form[1]
    assert of_form[0]["mounts"].pop("/data") == f"muster-volume-{TEAM}.shared"
    assert (of_form[0]["image"], of_form[0]["shm"]) == (IMAGE, "64Mi")
    assert of_form[0]["node_selector"] == {"kubernetes.io/os": "linux"}
    assert {of_form[0]["resources"][kind][name] for kind in ("requests", "limits") for name in amounts} == {*amounts.values()}  # fmt: skip
    for words in (IMAGE, "worker-0", "worker-1"):
        expect(page.get_by_text(words).first).to_be_visible()

    (tmp_path / "queue.yaml").write_text(FILE)
    env = pods.rig.env
    muster = [str(ROOT / "bin/muster")]
    subprocess.run([*muster, "queues", "set", "by-file", "--from-file", str(tmp_path / "queue.yaml")], env=env, check=True)  # fmt: skip
    asked = ["--queue", "by-file", "--framework", "plain", "--nodes", "2", "--nproc", "1", "--no-workspace", "-q"]
    said = subprocess.run([*muster, "submit", *asked, "--", *["python3", "-c", "pass"]], env=env, check=True, stdout=subprocess.PIPE, text=True)  # fmt: skip
    other = pods.client.job(int(said.stdout))
    of_file = until(lambda: len(found := pods.of(other)) == 2 and [described(pod) for pod in found])
    assert of_file[0]["mounts"].pop("/data") == f"muster-volume-{TEAM}.shared"
    assert of_file[0] == of_form[0]
    (folder / "end").write_text("")
    for one in (job, other):
        assert pods.until_phase(one, "succeeded", "failed").phase == "succeeded"
    for queue in ("by-hand", "by-file"):
        pods.client.set_queue(queue, defaults={})
    pods.client.delete_volume(TEAM, "shared")
    until(lambda: not pods.client.volumes(TEAM))
    pods.admin.delete("/api/v1/persistentvolumes/storage-of-a-team")
