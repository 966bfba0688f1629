"""/jobs/new"""

import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from jobs.core.fields import FIELDS
from jobs.models import Job
from jobs.web.forms import NUMBERS
from workspaces import reading


@pytest.fixture
def sent(queue):
    return {
        "queue": queue.pk, "code": "none", "command": "torchrun train.py --lr 0.1", "nodes": "2", "nproc_per_node": "2",
        "name": "", "env": "", "max_retries": "0", "paths": "", "idempotency_key": "key-1",
    }  # fmt: skip


def test_a_job_is_submitted_and_shown(owner, sent, people):
    answer = owner.post("/jobs/new", {**sent, "env": "LR=3e-4\n# a note\nNAME=a=b", "name": "mine", "max_retries": "2"})
    job = Job.objects.get()
    assert answer.url == f"/jobs/{job.pk}"
    assert (job.name, job.user, job.nodes, job.nproc_per_node) == ("mine", people.owner, 2, 2)
    assert job.spec["env"] == {"LR": "3e-4", "NAME": "a=b"}
    assert job.spec["max_retries"] == 2


def test_the_form_has_every_number_field_of_a_job(owner, queue):
    page = owner.get("/jobs/new").text
    for field in NUMBERS:
        assert f'name="{field.name}"' in page
    assert "etween the request to stop (SIGTERM) and SIGKILL" in page


def test_numbers_reach_the_job_and_its_clone(owner, sent):
    owner.post("/jobs/new", {**sent, "deadline_seconds": "60", "grace_seconds": "5", "priority": "7"})
    job = Job.objects.get()
    assert (job.spec["deadline_seconds"], job.spec["grace_seconds"], job.priority) == (60, 5, 7)
    assert job.spec["start_timeout_seconds"] == 300, "left empty"
    form = owner.get(f"/jobs/new?from={job.pk}").context["form"]
    assert (form["deadline_seconds"].value(), form["priority"].value()) == (60, 7)
    assert form.has_more()


def test_exit_codes_reach_the_job_and_its_clone(owner, sent):
    owner.post("/jobs/new", {**sent, "max_retries": "1", "retry_on": "75, 137"})
    job = Job.objects.get()
    assert job.spec["retry_on"] == [75, 137]
    assert owner.get(f"/jobs/new?from={job.pk}").context["form"]["retry_on"].value() == "75, 137"


def test_a_restart_policy_and_a_time_of_removal_reach_the_job_and_its_page(owner, sent):
    answer = owner.post("/jobs/new", {**sent, "restart_policy": "OnFailure", "ttl_seconds": "10800"})
    assert answer.status_code == 422, "the form's own number of retries is 0"
    assert "Means at least one retry, but max_retries is 0" in answer.text
    sent = {**sent, "max_retries": "", "ttl_seconds": "10800"}
    address = owner.post("/jobs/new", {**sent, "restart_policy": "OnFailure"}).url
    job = Job.objects.get()
    assert (job.spec["max_retries"], job.ttl_seconds) == (3, 10800)
    page = owner.get(address).text
    assert "<span>removed 3 h after its end</span>" in page
    assert "If a replica fails, all replicas start again, up to 3 times." in page
    assert owner.get(f"/jobs/new?from={job.pk}").context["form"]["ttl_seconds"].value() == 10800


def test_an_elastic_job_is_shown_as_elastic(owner, sent):
    address = owner.post("/jobs/new", {**sent, "nodes": "4", "min_nodes": "2"}).url
    assert Job.objects.get().min_nodes == 2
    assert "elastic, 2 to 4 nodes" in owner.get(address).text
    again = owner.get(f"/jobs/new?from={Job.objects.get().pk}").context["form"]
    assert again["min_nodes"].value() == 2


def test_a_command_quoted_as_a_whole_is_split_unless_a_file_has_that_name(owner, sent):
    owner.post("/jobs/new", {**sent, "command": "'python train.py --epochs 10'"})
    assert Job.objects.get().command == ["torchrun", "train.py", "--epochs", "10"]
    tool = {"code": "upload", "upload": [SimpleUploadedFile("my tool.sh", b"#!/bin/sh\n")], "command": "'./my tool.sh'"}
    owner.post("/jobs/new", {**sent, **tool, "idempotency_key": "key-2"})
    assert Job.objects.latest("id").command == ["./my tool.sh"]


def test_a_double_click_makes_one_job(owner, sent):
    assert owner.post("/jobs/new", sent).url == owner.post("/jobs/new", sent).url
    assert Job.objects.count() == 1


def test_a_form_changed_after_its_submission_asks_before_making_another_job(owner, sent):
    owner.post("/jobs/new", sent)
    changed = {**sent, "command": "torchrun other.py"}
    answer = owner.post("/jobs/new", changed)
    assert answer.status_code == 422
    assert "already submitted a job and was changed since" in answer.text
    key = answer.context["form"]["idempotency_key"].value()
    assert key != sent["idempotency_key"]
    assert owner.post("/jobs/new", {**changed, "idempotency_key": key}).status_code == 302
    assert Job.objects.count() == 2


def test_each_opened_form_has_its_own_key(owner, queue):
    first, second = (owner.get("/jobs/new").context["form"]["idempotency_key"].value() for _ in range(2))
    assert first != second


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("nodes", "0", "must be from 1"),
        ("nodes", "2.5", "must be a whole number"),
        ("nproc_per_node", "", "is missing"),
        ("nodes", "64", "lower nodes"),
        ("command", "", "is missing"),
        ("command", "torchrun 'train.py", "quotes"),
        ("env", "no equals sign", "line 1 has no ="),
        ("env", "MUSTER_JOB=1", "is set by Muster"),
        ("name", "Not A Name", "must be 1 to 40"),
        ("max_retries", "-1", "must be from 0"),
        ("min_nodes", "3", "is more than nodes=2"),
        ("queue", "999999", "valid choice"),
    ],
)
def test_an_error_is_shown_at_its_field_and_other_values_are_kept(owner, sent, field, value, words):
    answer = owner.post("/jobs/new", {**sent, "env": "LR=1", "command": "torchrun keep-me.py", field: value})
    assert answer.status_code == 422
    assert f'id="error-{field}"' in answer.text
    assert words.lower() in answer.text.lower()
    assert ("keep-me.py" in answer.text) or field == "command"
    assert not Job.objects.exists()


def test_all_that_is_wrong_is_said_at_once_also_where_no_file_was_chosen(owner, sent):
    answer = owner.post("/jobs/new", {**sent, "code": "upload", "name": "Not A Name"})
    assert answer.status_code == 422
    assert "No files were chosen; choose files or a folder" in answer.text
    assert 'id="error-name"' in answer.text and "Must be 1 to 40" in answer.text


def test_a_taken_name_is_an_error_of_the_name_field(owner, sent):
    owner.post("/jobs/new", {**sent, "name": "mine"})
    answer = owner.post("/jobs/new", {**sent, "name": "mine", "idempotency_key": "key-2"})
    assert answer.status_code == 422
    assert 'id="error-name"' in answer.text


def files(*names: str) -> list[SimpleUploadedFile]:
    return [SimpleUploadedFile(name, f"# {name}".encode()) for name in names]


def tree_of(job: Job) -> dict[str, bytes]:
    return {one.path: reading.content(job.workspace, one) for one in reading.entries(job.workspace)}


def test_an_uploaded_folder_keeps_its_subfolders(owner, sent):
    owner.post(
        "/jobs/new",
        {**sent, "code": "upload", "upload": files("train.py", "net.py"), "paths": '["train.py", "models/net.py"]'},
    )
    assert tree_of(Job.objects.get()) == {"models/net.py": b"# net.py", "train.py": b"# train.py"}


def test_files_without_paths_keep_their_names(owner, sent):
    owner.post("/jobs/new", {**sent, "code": "upload", "upload": files("train.py")})
    assert tree_of(Job.objects.get()) == {"train.py": b"# train.py"}


def test_a_script_is_made_executable(owner, sent):
    scripts = [
        SimpleUploadedFile("run.sh", b"#!/bin/sh"),
        SimpleUploadedFile("plain.txt", b"text"),
        SimpleUploadedFile("empty", b""),
    ]
    owner.post("/jobs/new", {**sent, "code": "upload", "upload": scripts})
    assert {one.path: one.kind for one in reading.entries(Job.objects.get().workspace)} == {
        "run.sh": "x",
        "plain.txt": "f",
        "empty": "f",
    }


def test_a_duplicate_path_is_an_error_of_the_upload_field(owner, sent):
    answer = owner.post("/jobs/new", {**sent, "code": "upload", "upload": files("a.py", "a.py")})
    assert 'id="error-upload"' in answer.text
    assert "A.py appears twice" in answer.text


def test_a_path_outside_the_folder_is_an_error_of_the_upload_field(owner, sent):
    answer = owner.post("/jobs/new", {**sent, "code": "upload", "upload": files("a.py"), "paths": '["../a.py"]'})
    assert 'id="error-upload"' in answer.text


@pytest.mark.parametrize("paths", ["not json", "{}", "[1]", "[" * 100_000, '["\\ud800", "a"]', '["one", "too many"]'])
def test_paths_that_do_not_match_the_files_are_ignored(owner, sent, paths):
    assert (
        owner.post("/jobs/new", {**sent, "code": "upload", "upload": files("a.py"), "paths": paths}).status_code == 302
    )


def test_an_empty_upload_is_an_error_of_the_upload_field(owner, sent):
    answer = owner.post("/jobs/new", {**sent, "code": "upload"})
    assert 'id="error-upload"' in answer.text


def test_uploaded_files_are_kept_after_an_error_in_another_field(owner, sent):
    answer = owner.post("/jobs/new", {**sent, "code": "upload", "upload": files("train.py"), "name": "Not A Name"})
    assert answer.status_code == 422
    form = answer.context["form"]
    assert form["code"].value() == "earlier"
    again = {**sent, "code": "earlier", "workspace": form["workspace"].value()}
    assert owner.post("/jobs/new", again).status_code == 302
    assert Job.objects.get().workspace is not None


def test_clone_and_edit_fills_the_form_but_not_the_name(owner, job):
    form = owner.get(f"/jobs/new?from={job.pk}").context["form"]
    assert form["command"].value() == "torchrun train.py"
    assert form["nodes"].value() == 2
    assert not form["name"].value()


@pytest.mark.parametrize(
    ("nodes", "per_node", "words"),
    [(2, 2, "Fits now: 8 of 8"), (4, 2, "Fits now"), (3, 3, "Never fits"), ("", 2, "nodes × processes per node")],
)
def test_the_preview_explains_the_numbers(owner, queue, htmx, nodes, per_node, words):
    url = f"/jobs/new?queue={queue.pk}&nodes={nodes}&nproc_per_node={per_node}"
    assert words in htmx(owner, url, "shape").text


def test_the_preview_accounts_for_slots_in_use(owner, queue, lab, htmx):
    lab.running(nodes=2, nproc_per_node=3)
    assert "Will wait: 2 of 8" in htmx(owner, f"/jobs/new?queue={queue.pk}&nodes=2&nproc_per_node=2", "shape").text


@pytest.mark.parametrize("value", ["x" * 40_000, "one two " * 5_000])
@pytest.mark.parametrize("field", ["nodes", "name", "env", "command", "code", "queue"])
def test_a_refusal_truncates_a_long_value(owner, sent, field, value):
    wrong = {"env": f"1{value}=1", "command": f"accelerate launch train.py {value}"}.get(field, value)
    answer = owner.post("/jobs/new", {**sent, field: wrong})
    assert answer.status_code == 422
    said = " ".join(re.findall(r'<p class="(?:notice )?error".*?</p>', answer.text, re.DOTALL))
    assert said and len(said) < 1_500, said
    assert value[:250] not in said


def test_all_errors_are_shown_at_once_and_files_are_kept(owner, sent):
    wrong = {"env": "no equals sign", "nodes": "0", "name": "Not A Name", "volumes": "UP", "code": "upload"}
    answer = owner.post("/jobs/new", {**sent, **wrong, "upload": files("train.py")})
    assert answer.status_code == 422
    assert [name for name in ("env", "nodes", "name", "volumes") if f'id="error-{name}"' not in answer.text] == []
    assert answer.text.count('class="error"') == 4
    form = answer.context["form"]
    assert form["code"].value() == "earlier" and form["workspace"].value()
    assert not Job.objects.exists()


def test_a_form_sent_by_htmx_is_answered_in_place(owner, sent, htmx):
    said = {"HX-Request": "true", "HX-Target": "form#submit-form"}
    answer = owner.post("/jobs/new", {**sent, "name": "Not A Name"}, headers=said)
    assert answer.status_code == 200
    assert answer.text.lstrip().startswith("<form") and 'id="error-name"' in answer.text
    done = owner.post("/jobs/new", sent, headers=said)
    assert done.headers["HX-Redirect"] == f"/jobs/{Job.objects.get().pk}"


def test_volumes_and_a_total_of_gpus_reach_the_job_and_its_clone(owner, sent, queue):
    queue.resource, queue.gpus_per_node = "gpu", 4
    queue.save()
    answer = owner.post(
        "/jobs/new", {**sent, "nodes": "", "nproc_per_node": "", "gpus": "8", "volumes": "data, models"}
    )
    assert answer.status_code == 302, re.findall(r'id="error-[^<]*', answer.text)
    job = Job.objects.get()
    assert (job.nodes, job.nproc_per_node, job.spec["volumes"]) == (2, 4, ["data", "models"])
    assert owner.get(f"/jobs/new?from={job.pk}").context["form"]["volumes"].value() == "data models"


def test_the_form_has_every_field_of_the_api(owner, queue):
    page = owner.get("/jobs/new").text
    assert [name for name in FIELDS if f'name="{name}"' not in page] == []
