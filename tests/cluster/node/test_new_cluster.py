"""A platform administrator adds a cluster in the browser alone, makes a queue on it and runs a job there."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Page, expect

from rig import image
from rig.world import settle
from tests.cluster.node.conftest import Pods, RealRun
from tests.cluster.node.pages import opened, sign_in_first, submit_plain

NAME, NAMESPACE, QUEUE = "added", "added-jobs", "on-added"
PASSWORD = "long-enough-for-a-test"
COMMAND = "python3 -c \"print('hello from a new cluster')\""


@pytest.fixture
def page(pods: Pods) -> Iterator[Page]:
    with opened(pods.rig.url) as page:
        yield page


@pytest.fixture
def kubeconfig(world: RealRun) -> str:
    """What `kubectl apply -f deploy/account.yaml` and bin/connect give an administrator to paste."""
    found = yaml.safe_load(settle(world.plane, NAMESPACE).read_text())
    (cluster,) = [one["cluster"] for one in found["clusters"]]
    authority = Path(cluster.pop("certificate-authority")).read_bytes()
    cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    return yaml.safe_dump(found)


def add_the_cluster(page: Page, pods: Pods, kubeconfig: str) -> None:
    page.goto("/clusters")
    page.get_by_role("link", name="Add a cluster").click()
    for field, value in (
        ("name", NAME), ("kubeconfig", kubeconfig), ("namespace", NAMESPACE), ("image", image.NAME),
        ("control_url", pods.rig.url), ("more", "PULL_POLICY: Never\n"),
    ):  # fmt: skip
        page.fill(f"#id_{field}", value)
    page.fill("#id_password", "not this one")
    page.get_by_role("button", name="Add cluster").click()
    expect(page.get_by_text("is not your current password")).to_be_visible()
    page.fill("#id_kubeconfig", kubeconfig)
    page.fill("#id_password", PASSWORD)
    page.get_by_role("button", name="Add cluster").click()
    expect(page.get_by_role("heading", name=f"Cluster {NAME}")).to_be_visible()
    expect(page.get_by_text("the account may not get, list, watch nodes")).to_be_visible()


def make_a_queue(page: Page) -> None:
    page.goto("/make-queue")
    page.fill("#id_name", QUEUE)
    page.select_option("#id_team", "pods")
    page.select_option("#id_cluster", NAME)
    page.select_option("#id_resource", "cpu")
    page.get_by_role("button", name="Create queue").click()
    expect(page.get_by_role("link", name=QUEUE, exact=True)).to_be_visible()


@pytest.mark.full  # its parts have tests of their own in tests/db/web, tests/cluster/api and tests/cluster/node
def test_a_cluster_is_added_and_a_job_runs_on_it_in_the_browser_alone(pods: Pods, page: Page, kubeconfig: str):
    first = pods.rig.installation
    sign_in_first(page, first.user, first.password, chosen=PASSWORD)
    add_the_cluster(page, pods, kubeconfig)
    make_a_queue(page)
    number = submit_plain(page, COMMAND, queue=QUEUE)
    expect(page.get_by_text("Succeeded", exact=True).first).to_be_visible(timeout=300_000)
    expect(page.get_by_text("hello from a new cluster").first).to_be_visible()
    job = pods.client.job(number)
    assert job.phase == "succeeded"
