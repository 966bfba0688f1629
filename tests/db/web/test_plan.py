"""The plan on the submit page: what would start, or everything that is wrong; nothing is created."""

import html
import re

import pytest

from jobs.core.plan import Endpoint, First, FirstRank, Here, Host, Index, Launch, Port
from jobs.models import Job
from jobs.web.plan import described
from workspaces.models import Workspace

HTMX = {"HX-Request": "true", "HX-Target": "plan"}
FORM = {
    "code": "none", "command": "torchrun train.py", "framework": "torchrun", "nodes": "2", "nproc_per_node": "2",
    "paths": "", "idempotency_key": "key-1", "show": "plan",
}  # fmt: skip


def text(answer) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def test_it_says_what_would_start_and_how_replicas_find_each_other(owner, queue):
    page = owner.post("/jobs/new", {**FORM, "queue": queue.pk}, headers=HTMX)
    assert "<html" not in page.text
    said = text(page)
    assert "It would start now." in said
    assert "worker 2 replicas, each 2 CPU slots Ranks 0 to 3 Command torchrun train.py" in said
    assert "PET_MASTER_ADDR address of worker-0" in said and "PET_NODE_RANK its number in its role, from 0" in said
    assert "torchrun's store listens on one port" in said
    assert not Job.objects.exists()


def test_each_role_has_its_own_line(owner, queue):
    sent = {**FORM, "framework": "plain", "nproc_per_node": "1", "helper_command": "serve --port 80", "helpers": "3"}
    said = text(owner.post("/jobs/new", {**sent, "queue": queue.pk}, headers=HTMX))
    assert "worker 2 replicas, each 1 CPU slot Ranks 0 to 1" in said
    assert "helper 3 replicas Ranks 2 to 4 Command serve --port 80" in said


def test_a_master_has_its_own_line_and_shape(owner, on_pods, queue):
    sent = {**FORM, "nodes": "3", "nproc_per_node": "2", "master_processes": "1", "master_memory": "8Gi"}
    said = text(owner.post("/jobs/new", {**sent, "queue": queue.pk}, headers=HTMX))
    assert "master 1 replica, each 1 CPU slot, memory 8Gi Ranks 0 Command torchrun train.py" in said
    assert "worker 2 replicas, each 2 CPU slots Ranks 1 to 4" in said
    assert "PET_NODE_RANK its number in its role, from 1" in said and "PET_MASTER_ADDR address of master-0" in said


def test_it_says_why_the_job_would_wait(owner, queue, lab):
    lab.running(nodes=1, nproc_per_node=6)
    said = text(owner.post("/jobs/new", {**FORM, "queue": queue.pk}, headers=HTMX))
    assert "It would wait: needs 4 CPU slots; queue default has 2 CPU slots free of 8 CPU slots." in said


def test_every_problem_is_listed_at_once(owner, queue):
    sent = {**FORM, "queue": queue.pk, "command": "", "grace_seconds": "-1", "env": "1A=b"}
    page = owner.post("/jobs/new", sent, headers=HTMX)
    assert page.status_code == 200
    assert "This would not be accepted:" in page.text
    assert "command is missing" in text(page)
    sent["command"] = "torchrun --nnodes=3 x.py"
    said = text(owner.post("/jobs/new", sent, headers=HTMX))
    assert "must be from 0 to 3600" in said and "1A" in said


def test_without_javascript_the_page_comes_back_with_the_plan_and_the_entries(owner, queue):
    page = owner.post("/jobs/new", {**FORM, "queue": queue.pk, "env": "LR=1"})
    assert page.status_code == 200 and "It would start now." in page.text and "LR=1" in page.text
    wrong = owner.post("/jobs/new", {**FORM, "queue": queue.pk, "grace_seconds": "-1"})
    assert wrong.status_code == 422 and "This would not be accepted" in wrong.text


def test_secrets_are_not_in_the_plan_and_code_is_not_stored(owner, queue):
    sent = {**FORM, "queue": queue.pk, "code": "upload", "paths": '["a.py"]', "secrets": "KEY=hush-hush"}
    page = owner.post("/jobs/new", sent, headers=HTMX)
    assert "It would start now." in page.text and "hush-hush" not in page.text
    assert not Workspace.objects.exists()


def test_others_cannot_ask_for_the_plan_of_a_queue(as_, people, queue):
    page = as_(people.stranger).post("/jobs/new", {**FORM, "queue": queue.pk}, headers=HTMX)
    assert "This would not be accepted" in page.text and "It would" not in page.text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Host("worker", 1), "address of worker-1"), (Port("rendezvous", 29500), "29500, on one machine a free port"),
        (Endpoint(Host("head", 0), Port("gcs", 6379)), "address of head-0, port 6379, on one machine a free port"),
        (Index(), "its number in its role, from 0"), (Index(1), "its number in its role, from 1"), (FirstRank(), "its rank"), (Here(), "its own address"),
        (Launch(), "a name of this attempt"), (First("a", "b"), "a in replica 0, b in the others"), ("text", "text"),
    ],
)  # fmt: skip
def test_values_known_only_later_are_described(value, words):
    assert described(value) == words


SUBMITTED = {name: value for name, value in FORM.items() if name != "show"}
POD = {
    "image": "registry.example/mine:2", "cpu": "4", "memory": "8Gi", "node_selector": "pool=a100\nzone=z1",
    "tolerations": "spot gpu=true:NoSchedule", "labels": "cost-centre=42", "working_dir": "examples",
    "roles": "worker: {memory: 16Gi}",
}  # fmt: skip


def test_it_says_what_the_pods_are(owner, on_pods, queue):
    said = text(owner.post("/jobs/new", {**FORM, **POD, "queue": queue.pk}, headers=HTMX))
    assert "worker 2 replicas, each 2 CPU slots, cpu 4, memory 16Gi" in said
    assert "Image registry.example/mine:2 On nodes with pool=a100, zone=z1 Tolerates spot, gpu=true:NoSchedule" in said
    assert "Labels cost-centre=42 Working directory examples" in said


def test_the_job_of_such_a_form_has_these_fields_and_its_page_and_a_repeated_form_show_them(owner, on_pods, queue):
    owner.post("/jobs/new", {**SUBMITTED, **POD, "queue": queue.pk})
    job = Job.objects.get()
    assert job.spec["tolerations"][0] == {"key": "spot", "operator": "Exists"}
    assert (job.spec["image"], job.spec["roles"]) == (POD["image"], {"worker": {"memory": "16Gi"}})
    said = text(owner.get(job.get_absolute_url()))
    assert "Pods worker 2 replicas, each 2 CPU slots, cpu 4, memory 16Gi Image registry.example/mine:2" in said
    again = owner.get(f"/jobs/new?from={job.pk}")
    form = again.context["form"]
    wanted = {name: form[name].value() for name in POD}
    assert wanted == {**POD, "roles": "worker:\n  memory: 16Gi\n", "tolerations": "spot\ngpu=true:NoSchedule"}


def test_what_has_no_effect_on_a_machine_s_processes_is_noted_and_an_image_is_refused(owner, queue):
    sent = {**FORM, "queue": queue.pk, "memory": "8Gi", "roles": "worker: {cpu: 2}"}
    said = text(owner.post("/jobs/new", sent, headers=HTMX))
    assert "starts processes of one machine, which have no pods: cpu, memory have no effect there" in said
    said = text(owner.post("/jobs/new", {**sent, "image": "a:1"}, headers=HTMX))
    assert "cannot be used on cluster local, which starts processes of one machine" in said


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("memory", "512GB", "is not understood; write 512Gi"),
        ("node_selector", "pool", "line 1 has no ="),
        ("labels", "muster.dev/run=x", "belongs to Muster"),
        ("roles", "worker: {1: 2}", "has the key 1, which is no text"),
        ("roles", "worker: {cpu: 2020-01-01}", "is not understood"),
        ("roles", "worker: {cpu: 0x" + "f" * 5000 + "}", "is not understood"),
        ("roles", 'worker: {annotations: {a: "\\ud800"}}', "has a character that no text may have"),
        ("tolerations", '{"key": "a", "value": "\\u0000"}', "has a character that no text may have"),
        ("tolerations", "spot\nb:Never", "has an unknown effect"),
        ("roles", "worker: &a {cpu: 1}", "has an anchor or alias in line 1"),
        ("roles", "head: {cpu: 1}", "is no role of this job; it has worker"),
    ],
)
def test_a_wrong_field_of_pods_is_shown_at_its_place(owner, on_pods, queue, field, value, words):
    page = owner.post("/jobs/new", {**SUBMITTED, "queue": queue.pk, field: value})
    errors = " ".join(page.context["form"].errors[field])
    assert words in errors and not Job.objects.exists()
