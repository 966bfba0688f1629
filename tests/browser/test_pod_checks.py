"""The section of a cluster's check by pods: it shows by itself what was found, fits a phone, and works without JavaScript."""

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from jobs.models import ClusterCheck
from tests.browser.conftest import new_context, sign_in
from tests.browser.test_axe import FINDINGS

pytestmark = pytest.mark.ci


@pytest.fixture
def administrator(people):
    people.owner.is_superuser = True
    people.owner.save()
    return people.owner


@pytest.mark.parametrize("width", [390, 1280])
def test_a_running_check_is_followed_to_what_it_found(chromium, site, administrator, width):
    row = ClusterCheck.objects.create(cluster="local", image="team/train:1", asked_by=administrator)
    context = new_context(chromium, site, viewport={"width": width, "height": 800})
    page = context.new_page()
    sign_in(page)
    page.goto("/clusters/local/pods")
    section = page.locator("#pod-checks")
    expect(section).to_contain_text("Two small pods look at the cluster")
    expect(section.locator("form")).to_have_count(0)
    ClusterCheck.objects.filter(pk=row.pk).update(findings=FINDINGS, ended_at=timezone.now())
    expect(section).to_contain_text("A pod of image team/train:1 starts on node gpu-1")
    expect(section.locator("tbody tr").first).to_contain_text("Pods are cut off"), "what is wrong comes first"
    expect(section.locator("form")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


@pytest.mark.parametrize("has_script", [True, False])
def test_a_cluster_that_makes_no_pods_refuses_it_beside_the_form(chromium, site, administrator, has_script):
    context = new_context(chromium, site, java_script_enabled=has_script)
    page = context.new_page()
    sign_in(page)
    page.goto("/clusters/local/pods")
    page.fill("[name=image]", "team/train:1")
    page.click("text=Check by pods")
    expect(page.locator("#error-pod-check")).to_contain_text("processes of one machine")
    expect(page.locator("[name=image]")).to_have_value("team/train:1")
    context.close()
