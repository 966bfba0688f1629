"""A plain job in the submit form: the fields of the chosen framework, and no other framework's."""

import re

from jobs.models import Job

FORM = {
    "code": "none", "command": "python train.py", "framework": "plain", "nodes": "2", "nproc_per_node": "1",
    "helper_command": "python serve.py --port 80", "helpers": "2", "paths": "", "idempotency_key": "key-1",
}  # fmt: skip


def test_the_form_submits_it_and_repeats_it(owner, queue):
    answer = owner.post("/jobs/new", {**FORM, "queue": queue.pk})
    job = Job.objects.get()
    assert answer.url == f"/jobs/{job.pk}"
    assert job.spec["options"] == {"helper_command": ["python", "serve.py", "--port", "80"], "helpers": 2}
    assert "2 worker + 2 helper = 4 ranks" in owner.get(answer.url).text
    form = owner.get(f"/jobs/new?from={job.pk}").context["form"]
    assert (form["framework"].value(), form["helper_command"].value()) == ("plain", "python serve.py --port 80")


def test_the_form_marks_the_field_that_is_wrong(owner, queue):
    page = owner.post("/jobs/new", {**FORM, "queue": queue.pk, "helpers": "0"})
    assert page.status_code == 422 and "ust be from 1 to 4096, not 0" in page.text
    assert page.context["form"]["helper_command"].value() == "python serve.py --port 80"


def test_only_the_chosen_frameworks_fields_are_on_the_page(owner, queue):
    assert 'name="helpers"' not in owner.get("/jobs/new").text
    htmx = {"HX-Request": "true", "HX-Target": "own"}
    part = owner.get("/jobs/new", {"framework": "plain"}, headers=htmx).text
    assert 'name="helpers"' in part and "<html" not in part
    assert 'name="helpers"' not in owner.get("/jobs/new", {"framework": "torchrun"}, headers=htmx).text
    assert owner.get("/jobs/new", {"framework": "no such"}, headers=htmx).status_code == 200


def test_a_link_opens_the_form_with_a_framework_chosen(owner, queue):
    page = owner.get("/jobs/new?framework=plain").text
    assert 'name="helpers"' in page and '<option value="plain" selected>' in page
    assert '<a href="?framework=plain">plain</a>' in owner.get("/jobs/new").text


def test_the_preview_counts_slots_and_ranks_apart(owner, queue):
    htmx = {"HX-Request": "true", "HX-Target": "shape"}
    asked = {"queue": queue.pk, "nodes": 2, "nproc_per_node": 2}
    assert "= <b>4</b> ranks" in owner.get("/jobs/new", asked, headers=htmx).text
    plain = owner.get("/jobs/new", {**asked, "framework": "plain"}, headers=htmx).text
    assert "<b>4</b> " in plain and "2 ranks" in plain
    assert 'hx-swap-oob="true">Devices per node</label>' in plain
    assert "hx-swap-oob" not in owner.get("/jobs/new", asked).text


def test_the_list_counts_replicas_by_role(owner, queue):
    owner.post("/jobs/new", {**FORM, "queue": queue.pk, "nproc_per_node": "2"})
    assert '<span class="shape">2 worker + 2 helper</span>' in owner.get("/jobs").text


def test_the_page_has_a_band_of_ranks_for_each_role(owner, lab):
    job = lab.running(
        command="python train.py", framework="plain", nodes=2, nproc_per_node=1, helper_command=["serve"], helpers=3
    )
    page = owner.get(f"/jobs/{job.pk}").text
    bands = re.findall(r'<h3 class="band">(.*?)</h3>', page)
    assert bands == ["worker <small>2 replicas, 2 ranks</small>", "helper <small>3 replicas, 3 ranks</small>"]
    assert re.findall(r'<b class="n">(\d+)</b>', page) == ["0", "1", "2", "3", "4"]
    assert 'class="band"' not in owner.get(f"/jobs/{lab.running(nodes=1, nproc_per_node=1).pk}").text
