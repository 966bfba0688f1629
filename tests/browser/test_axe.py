"""axe finds nothing on any page, in both themes and at each width that a layout changes at."""

from dataclasses import asdict

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.utils import timezone
from playwright.sync_api import expect

from accounts.models import Membership, Role
from credentials import services as secrets
from jobs.clusters import Inspected
from jobs.models import ClusterCheck
from queues import excluded, requests
from queues.models import AddedCluster, Queue, TeamNamespace
from tests.browser.conftest import new_context
from tests.browser.test_pages import live
from tests.support import seed
from volumes import services as volumes

pytestmark = pytest.mark.ci

WIDTHS, THEMES = (1440, 1024, 821, 390), ("light", "dark")
LOOKS = [
    pytest.param(width, theme, marks=() if theme == "light" and width == 1440 else pytest.mark.full)
    for width in WIDTHS for theme in THEMES
]  # fmt: skip
FINDINGS = [
    asdict(Inspected("pods", "ok", "a pod of image team/train:1 starts on node gpu-1")),
    asdict(
        Inspected("image", "note", "team/train:1 holds no ray", "an image that holds it", "an administrator of Muster")
    ),
    asdict(Inspected("network", "wrong", "pods are cut off", "kubectl -n muster-jobs get networkpolicies", "somebody")),
]
RULES = {
    "runOnly": {
        "type": "tag",
        "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice", "experimental"],
    }
}


def troubles(page) -> list[str]:
    """What axe finds on the page, each with the first element that has it.

    ARIA 1.2 makes a separator that takes the focus a widget (APG, window splitter); axe's experimental rule for the
    focus order knows it as structure only.
    """
    found = []
    for one in Axe().run(page, options=RULES).response["violations"]:
        nodes = [node["html"] for node in one["nodes"]]
        if one["id"] == "focus-order-semantics":
            nodes = [html for html in nodes if 'role="separator" tabindex="0"' not in html]
        found += [f"{page.url}: {one['id']}: {one['help']}: {html[:160]}" for html in nodes[:1]]
    return found


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_axe_finds_nothing(chromium, site, lab, people, team, width, theme):
    people.owner.is_superuser = True
    people.owner.save()
    Membership.objects.filter(team=team, user=people.owner).update(role=Role.ADMIN)
    failed = seed.failed(lab, steps=10)
    running = seed.running(lab, steps=20)
    running.ranks.filter(rank=1).update(nan_series="loss", nan_step=12)  # a rank that needs a look
    seed.checkpoints(running, steps=range(100, 1200, 100))
    seed.nodes(running)
    Queue.objects.filter(pk=running.queue_id).update(resource="gpu", gpus_per_node=8)
    seed.queued(lab)
    seed.webhook(team, job=failed)
    secrets.create(team=team, by=people.owner, name="hub", kind="env", values={"HF_TOKEN": "x", "WANDB_API_KEY": "y"})
    excluded.exclude(cluster="local", name="gpu-1", reason="Xid 79", by=None)
    volumes.create(team=team, by=people.owner, name="datasets", cluster="local", size="1Ti")
    far = {
        "NAMESPACE": "muster-jobs",
        "IMAGE": "team/train:1",
        "CONTROL_URL": "https://muster.example",
        "JOB_CLAIM": "jobs",
    }
    AddedCluster.objects.create(name="far", server="https://kube.example:6443", options=far)
    TeamNamespace.objects.create(team=team, cluster="far", namespace="nlp-jobs", bound_by=people.admin)
    for image in ("team/train:1", "team/train:2"):
        ClusterCheck.objects.create(cluster="local", image=image, findings=FINDINGS, ended_at=timezone.now())
    requests.ask(by=people.owner, queue=lab.queue, slots=64, why="an evaluation")
    context = new_context(chromium, site, viewport={"width": width, "height": 900}, color_scheme=theme)
    page = context.new_page()
    page.goto("/login")
    found = troubles(page)
    page.fill("[name=username]", "owner")
    page.fill("[name=password]", "owner-has-a-password")
    page.click("button")
    page.wait_for_url("**/jobs")
    paths = (
        "/jobs", f"/jobs/{running.pk}", f"/jobs/{failed.pk}", f"/jobs/{running.pk}?view=list", f"/jobs/{running.pk}/logs", f"/jobs/{running.pk}/cluster-events", "/jobs/new",
        "/", "/queues", "/queues/default", "/make-queue", "/teams", "/teams/nlp", "/teams/nlp/audit", "/teams/nlp/webhooks", "/teams/nlp/webhooks/chat", "/people", "/nodes", "/clusters", "/clusters/local?check=1", "/clusters/local/pods", "/clusters/local?only=wrong", "/clusters/local/nodes/gpu-1", "/clusters/far/namespaces", "/new-cluster", "/clusters/far/settings", "/account",
        "/usage?by=user", "/quota-requests", "/quota-requests?queue=default", f"/jobs/{running.pk}/priority", "/teams/nlp/quota", "/teams/nlp/secrets", "/teams/nlp/secrets/hub", "/teams/nlp/volumes", "/teams/nlp/volumes/datasets", "/queues/default/template",
        "/account/tokens", "/account/password", "/account/sessions", "/account/second-factor", "/jobs/999999",
    )  # fmt: skip
    for path in paths:
        page.goto(path)
        if path != "/jobs/999999":
            live(page)
        expect(page.locator("h1").first).to_be_visible()
        found += troubles(page)
    context.close()
    assert not found, "\n".join(found)
