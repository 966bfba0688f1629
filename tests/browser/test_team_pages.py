"""Secrets, volumes and a queue's template: what is entered is kept, errors are beside their inputs, both sides agree."""

import json

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from accounts.models import Membership, Role
from credentials.models import TeamSecret
from jobs.models import AttemptFailure
from queues import services
from queues.models import ExcludedNode, Queue
from tests.browser.conftest import new_context, sign_in
from tests.support import seed
from tests.support.builders import Lab
from tests.support.site import serve_many, settle
from volumes.models import Volume

pytestmark = pytest.mark.ci
CLUSTERS = {
    "local": {"BACKEND": "jobs.clusters.local.LocalCluster"},
    "pods": {"BACKEND": "jobs.clusters.memory.MemoryCluster"},
}
SIDECAR = {"pods": {"sidecars": [{"name": "proxy", "image": "proxy:1"}]}}


@pytest.fixture(scope="module")
def site_with_pods(django_db_setup, django_db_blocker):
    with django_db_blocker.unblock(), serve_many(MUSTER_CLUSTERS=json.dumps(CLUSTERS)) as site:
        yield site


@pytest.fixture
def queue(people, team, settings):
    Membership.objects.filter(team=team, user=people.owner).update(role=Role.ADMIN)
    settings.CLUSTERS = {**settings.CLUSTERS, "pods": CLUSTERS["pods"]}
    queue = Queue.objects.create(name="train", team=team, cluster="pods", nominal=8, resource="gpu", gpus_per_node=8)
    services.set_template(queue=queue, by=people.admin, defaults={"image": "ours:1"}, template=SIDECAR)
    queue.refresh_from_db()
    return queue


@pytest.fixture(params=[True, False], ids=["script", "plain"])
def page(chromium, transactional_db, queue, site_with_pods, request):
    """A signed-in page, also without JavaScript; the console must stay without errors."""
    context = new_context(chromium, site_with_pods, java_script_enabled=request.param)
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    sign_in(page)
    yield page
    context.close()
    settle()
    known = ("422", "409", "signal is aborted")  # refused forms, and a request that a later one of its form replaced
    assert [one for one in troubles if not any(word in one for word in known)] == []


def has_script(page) -> bool:
    """Whether its scripts run: they show the button that changes the theme."""
    return page.locator("[data-theme-toggle]:visible").count() > 0


def test_a_secret_shows_the_inputs_of_its_kind_and_keeps_what_was_entered(page, team):
    page.goto("/teams/nlp/secrets")
    for kind, inputs in (
        ("registry", ["server", "username", "password"]),
        ("file", ["file", "content", "upload"]),
        ("env", ["values"]),
    ):
        page.check(f"#kind-{kind}")
        shown = [one.get_attribute("name") for one in page.locator("#new-secret :is(input, textarea):visible").all()]
        assert [one for one in shown if one not in ("kind", "name")] == inputs
    page.fill("#id_name", "hub")
    page.fill("#id_values", "HF TOKEN=abc")
    page.get_by_role("button", name="Create secret").click()
    expect(page.locator("#error-values")).to_have_text(
        "HF TOKEN is not a variable name; use at most 100 letters, digits and _."
    )
    expect(page.locator("#id_values")).to_have_attribute("aria-invalid", "true")
    assert page.input_value("#id_name") == "hub"
    assert page.input_value("#id_values") == (
        "HF TOKEN=abc" if has_script(page) else ""
    )  # never sent back by the server
    page.fill("#id_values", "HF_TOKEN=abc")
    page.get_by_role("button", name="Create secret").click()
    expect(page.get_by_role("link", name="hub")).to_be_visible()
    page.fill("#id_name", "hub")
    page.fill("#id_values", "A=1")
    page.get_by_role("button", name="Create secret").click()
    expect(page.locator("#error-name")).to_contain_text("has a secret named hub already")
    page.goto("/teams/nlp/secrets/hub")
    page.get_by_role("button", name="Save version 2").click()
    expect(page.get_by_role("alert").first).to_have_text("Nothing was entered.")
    page.fill("#id_values", "OTHER=1")
    page.get_by_role("button", name="Save version 2").click()
    expect(page.get_by_role("button", name="Save version 3")).to_be_visible()
    page.locator("summary:has-text('Remove secret')").click()
    page.get_by_role("button", name="Remove it").click()
    page.wait_for_url("**/secrets")
    assert not TeamSecret.objects.exists()


def test_a_volume_says_beside_its_input_what_is_wrong_and_keeps_the_rest(page, team):
    page.goto("/teams/nlp/volumes")
    page.fill("#id_name", "datasets")
    page.select_option("#id_cluster", "pods")
    page.fill("#id_size", "much")
    page.fill("#id_mount_path", "/etc/x")
    page.check("[name=is_read_only]")
    page.get_by_role("button", name="Create volume").click()
    expect(page.locator("#error-mount_path")).to_contain_text("belongs to the image")
    assert (page.input_value("#id_size"), page.input_value("#id_mount_path")) == ("much", "/etc/x")
    page.fill("#id_mount_path", "/data")
    page.get_by_role("button", name="Create volume").click()
    expect(page.locator("#error-size")).to_be_visible()
    page.fill("#id_size", "1Ti")
    page.get_by_role("button", name="Create volume").click()
    page.get_by_role("link", name="datasets").click()
    page.fill("#id_size", "1Gi")
    page.fill("#id_mount_path", "/other")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#error-size")).to_contain_text("can grow and never shrink")
    assert (page.input_value("#id_size"), page.input_value("#id_mount_path")) == ("1Gi", "/other")
    row = Volume.objects.get()
    assert (row.size, row.mount_path, row.is_read_only) == ("1Ti", "/data", True)


def test_form_and_yaml_follow_each_other_and_neither_loses_a_change(page, queue):
    page.goto("/queues/train/template")
    script = has_script(page)
    page.fill("#id_defaults_cpu", "8")
    page.fill("#id_defaults_image", "theirs:2")
    if script:
        page.locator("#id_defaults_cpu").focus()
        expect(page.locator("#id_yaml")).to_have_value(
            "defaults:\n  image: theirs:2\n  cpu: '8'\npods:\n  sidecars:\n  - name: proxy\n    image: proxy:1\n"
        )
    text = page.input_value("#id_yaml").replace("proxy:1", "proxy:2")
    if script:
        page.fill("#id_yaml", "a: [")
        page.locator("#id_defaults_cpu").focus()
        expect(page.locator("#error-yaml")).to_contain_text("The YAML is not valid YAML in line")
        assert page.input_value("#id_yaml") == "a: [" and page.input_value("#id_defaults_image") == "theirs:2"
    page.fill("#id_yaml", text + "shm_per_gpu: 4Gi\n")
    if script:
        page.locator("#id_defaults_cpu").focus()
        expect(page.locator("#id_shm_per_gpu")).to_have_value("4Gi")
        expect(page.locator("#error-yaml")).to_have_count(0)
        expect(page.locator("#id_yaml")).not_to_have_attribute("aria-invalid", "true")
    page.fill("#id_node_cpus", "96")  # and Save at once, before the other side can follow
    page.get_by_role("button", name="Save version").click()
    expect(page.get_by_role("button", name="Save version 4")).to_be_visible()
    queue.refresh_from_db()
    assert queue.defaults == {"image": "theirs:2", "cpu": "8"}
    sidecars = {"sidecars": [{"name": "proxy", "image": "proxy:2"}]}
    assert queue.template == {"node": {"cpus": "96"}, "shm_per_gpu": "4Gi", "pods": sidecars}


def test_what_is_refused_is_said_at_its_input_and_can_be_corrected_there(page, queue):
    page.goto("/queues/train/template")
    page.fill("#id_node_memory", "lots")
    page.fill("#id_defaults_image", "theirs:2")
    page.get_by_role("button", name="Save version").click()
    expect(page.locator("#error-node_memory")).to_be_visible()
    assert (page.input_value("#id_node_memory"), page.input_value("#id_defaults_image")) == ("lots", "theirs:2")
    page.fill("#id_node_memory", "512Gi")
    page.get_by_role("button", name="Save version").click()
    expect(page.get_by_role("button", name="Save version 4")).to_be_visible()
    queue.refresh_from_db()
    assert (queue.template["node"], queue.defaults) == ({"memory": "512Gi"}, {"image": "theirs:2"})


def test_of_two_administrators_the_second_sees_both_and_keeps_what_was_typed(page, queue, people):
    page.goto("/queues/train/template")
    page.fill("#id_node_memory", "512Gi")
    services.set_template(queue=queue, by=people.admin, defaults={"image": "first:2"})
    page.get_by_role("button", name="Save version").click()
    expect(page.get_by_role("alert").first).to_contain_text(
        "Nothing was saved: queue train was changed by root since version 2"
    )
    expect(page.locator("#there")).to_contain_text("first:2")
    assert page.input_value("#id_node_memory") == "512Gi" and "memory: 512Gi" in page.input_value("#id_yaml")
    page.get_by_role("button", name="Save version 4").click()
    expect(page.get_by_role("button", name="Save version 5")).to_be_visible()
    queue.refresh_from_db()
    assert (queue.defaults, queue.template["node"]) == ({"image": "ours:1"}, {"memory": "512Gi"})


def test_a_node_that_fails_is_proposed_excluded_and_readmitted(page, queue, people):
    people.owner.is_superuser = True
    people.owner.save()
    lab = Lab(queue, people.owner)
    for number in (1, 2):
        job = seed.failed(lab, name=f"train-{number}")
        words = f"rank {number}: RuntimeError: CUDA error: uncorrectable ECC error encountered"
        said = {
            "kind": "hardware",
            "certainty": "sure",
            "headline": words,
            "explanation": words,
            "judged_at": timezone.now(),
        }
        AttemptFailure.objects.update_or_create(job=job, attempt=1, defaults={**said, "node": "gpu-node-07"})
    page.goto("/nodes")
    expect(page.get_by_role("link", name="train-2")).to_be_visible()
    page.get_by_role("button", name="Exclude gpu-node-07").click()
    expect(page.get_by_role("button", name="Readmit gpu-node-07")).to_be_visible()
    expect(page.get_by_role("button", name="Exclude gpu-node-07")).to_have_count(0)
    page.fill("#id_name", "gpu node")
    page.fill("#id_reason", "it hums")
    page.get_by_role("button", name="Exclude node").click()
    expect(page.locator("#error-name")).to_contain_text("Is not the name of a node")
    assert page.input_value("#id_reason") == "it hums"
    page.get_by_role("button", name="Readmit gpu-node-07").click()
    expect(page.get_by_role("button", name="Readmit gpu-node-07")).to_have_count(0)
    row = ExcludedNode.objects.get()
    assert row.readmitted_by == people.owner and row.reason.startswith("2 jobs failed on it within a day")
