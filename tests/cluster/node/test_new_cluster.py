"""A platform administrator adds a cluster in the browser alone, makes a queue on it and runs a job there."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Page, expect, sync_playwright

from rig import image
from rig.world import settle
from tests.cluster.node.conftest import Pods, RealRun
from tests.support.machine import need_chromium
from tests.support.patience import PATIENCE_SECONDS

NAME, NAMESPACE, QUEUE = "added", "added-jobs", "on-added"
PASSWORD = "long-enough-for-a-test"


@pytest.fixture
def page(pods: Pods) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=need_chromium(), args=["--no-sandbox"])
        context = browser.new_context(base_url=pods.rig.url)
        context.set_default_timeout(1000 * PATIENCE_SECONDS)
        expect.set_options(1000 * PATIENCE_SECONDS)
        yield context.new_page()
        browser.close()


@pytest.fixture
def kubeconfig(world: RealRun) -> str:
    """What `kubectl apply -f deploy/account.yaml` and bin/connect give an administrator to paste."""
    found = yaml.safe_load(settle(world.plane, NAMESPACE).read_text())
    (cluster,) = [one["cluster"] for one in found["clusters"]]
    authority = Path(cluster.pop("certificate-authority")).read_bytes()
    cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    return yaml.safe_dump(found)


def sign_in(page: Page, pods: Pods) -> None:
    """As the installation's first administrator, who chooses a password first."""
    first = pods.rig.installation.password
    page.goto("/login")
    page.fill("[name=username]", pods.rig.installation.user)
    page.fill("[name=password]", first)
    page.locator("form button").first.click()
    page.fill("#id_old_password", first)
    for field in ("#id_new_password1", "#id_new_password2"):
        page.fill(field, PASSWORD)
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_role("link", name="Queues")).to_be_visible()


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


def submit(page: Page) -> int:
    page.goto("/jobs/new")
    page.fill("#id_command", "python3 -c \"print('hello from a new cluster')\"")
    page.select_option("#id_framework", "plain")
    page.check("#code-none", force=True)
    page.select_option("#id_queue", label=page.locator("#id_queue option", has_text=QUEUE).first.inner_text())
    page.fill("#id_nodes", "2")
    page.fill("#id_nproc_per_node", "1")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/jobs/[0-9]+$"))
    return int(page.url.rsplit("/", 1)[1])


@pytest.mark.full  # its parts have tests of their own in tests/db/web, tests/cluster/api and tests/cluster/node
def test_a_cluster_is_added_and_a_job_runs_on_it_in_the_browser_alone(pods: Pods, page: Page, kubeconfig: str):
    sign_in(page, pods)
    add_the_cluster(page, pods, kubeconfig)
    make_a_queue(page)
    number = submit(page)
    expect(page.get_by_text("Succeeded", exact=True).first).to_be_visible(timeout=300_000)
    expect(page.get_by_text("hello from a new cluster").first).to_be_visible()
    job = pods.client.job(number)
    assert job.phase == "succeeded"
