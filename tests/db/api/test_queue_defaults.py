"""Fields that a queue gives its jobs: set by the server's operator, checked like a job's own, and audited."""

import pytest
from django.core.management import CommandError, call_command

from accounts.models import AuditEntry, Membership, Role
from common.errors import InvalidInput, InvalidSpec
from jobs import services
from jobs.submission.resolving import queue_defaults

MONARCH = {"framework": "monarch", "command": "python3 train.py"}


def set_defaults(*words: str) -> None:
    call_command("queue_defaults", *words)


@pytest.mark.django_db
def test_a_jobs_own_value_comes_before_the_queues(queue, capsys):
    set_defaults(queue.name, "grace_seconds=5", "max_retries=2")
    assert capsys.readouterr().out == f"defaults of queue {queue.name}: grace_seconds=5, max_retries=2\n"
    queue.refresh_from_db()
    spec = services.resolve(queue=queue, sent={"command": "torchrun train.py", "max_retries": 0})
    assert (spec.grace_seconds, spec.max_retries) == (5, 0)
    set_defaults(queue.name, "grace_seconds=")
    queue.refresh_from_db()
    assert queue.defaults == {"max_retries": 2}
    entry = AuditEntry.objects.latest("pk")
    assert (entry.before, entry.after) == (
        {"defaults": {"grace_seconds": 5, "max_retries": 2}},
        {"defaults": {"max_retries": 2}},
    )


@pytest.mark.django_db
def test_a_queue_cannot_give_a_policy_and_retries_that_exclude_each_other(queue):
    assert queue_defaults(queue, {"restart_policy": "OnFailure"}) == {"restart_policy": "OnFailure"}
    with pytest.raises(InvalidInput) as caught:
        queue_defaults(queue, {"restart_policy": "Never", "max_retries": 2})
    assert [one.field for one in caught.value.problems] == ["defaults.restart_policy"]


@pytest.mark.django_db
def test_a_plan_and_the_history_say_what_a_policy_became(queue, people):
    sent = {"command": "torchrun train.py", "restart_policy": "OnFailure"}
    said = "restart_policy OnFailure became max_retries 3"
    assert said in services.preview(user=people.owner, queue=queue, sent=sent).notes
    job, _ = services.submit(user=people.owner, queue=queue, sent=sent)
    assert job.events.get(kind="submitted").message == f"submitted; {said}"
    again, _ = services.resubmit(job=job, by=people.owner)
    assert again.spec["max_retries"] == 3


@pytest.mark.django_db
def test_a_default_of_one_framework_holds_for_its_jobs_only(queue, settings):
    settings.CLUSTERS = {"local": {"BACKEND": "jobs.clusters.memory.MemoryCluster"}}
    set_defaults(queue.name, "mesh_launcher=MonarchMesh")
    queue.refresh_from_db()
    assert services.resolve(queue=queue, sent=MONARCH).options == {"mesh_launcher": "MonarchMesh"}
    assert services.resolve(queue=queue, sent={"command": "torchrun train.py"}).options == {}
    assert services.resolve(queue=queue, sent={**MONARCH, "mesh_launcher": "pods"}).options == {"mesh_launcher": "pods"}


@pytest.mark.django_db
def test_a_text_that_the_framework_had_to_change_is_said(queue, people):
    sent = {**MONARCH, "mesh_name": "train-ers"}
    said = "mesh_name train-ers became trainers: Monarch allows lowercase letters and digits, at most 24, the first a letter"
    assert said in services.preview(user=people.owner, queue=queue, sent=sent).notes
    job, _ = services.submit(user=people.owner, queue=queue, sent=sent)
    assert job.events.get(kind="submitted").message == f"submitted; {said}"


@pytest.mark.django_db
def test_a_cluster_without_operators_refuses_their_objects(queue):
    with pytest.raises(InvalidSpec) as caught:
        services.resolve(queue=queue, sent={**MONARCH, "mesh_launcher": "MonarchMesh"})
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == ("mesh_launcher", "MonarchMesh")
    assert (
        problem.message
        == "does not exist on cluster local, which starts processes of one machine; remove mesh_launcher"
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["grace_seconds=soon"], "grace_seconds: .*must be a whole number"),
        (["mesh_launcher=helm"], "mesh_launcher: .*use pods or MonarchMesh"),
        (["colour=red"], "colour: is not a field that a queue can give its jobs; known are annotations,"),
        (["command=true"], "command: is not a field that a queue can give"),
        (["grace_seconds"], "grace_seconds: give NAME=VALUE"),
    ],
)
def test_what_no_job_could_have_is_refused_and_nothing_is_changed(queue, words, said):
    with pytest.raises(CommandError, match=said):
        set_defaults(queue.name, "priority=5", *words)
    queue.refresh_from_db()
    assert queue.defaults == {}


@pytest.mark.django_db
def test_an_unknown_queue_is_named_beside_those_that_exist(queue):
    with pytest.raises(CommandError, match=f"no queue nowhere; there are {queue.name}"):
        set_defaults("nowhere")


POD = {
    "image": "registry.example/nlp/train:2.9",
    "memory": "64Gi",
    "node_selector": {"pool": "a100"},
    "tolerations": ["spot"],
}


@pytest.fixture
def team_admin(people, team):
    Membership.objects.filter(user=people.owner, team=team).update(role=Role.ADMIN)
    return people.owner


@pytest.mark.django_db
def test_a_team_admin_sets_what_the_pods_of_its_jobs_are_and_submitted_jobs_keep_theirs(
    client, team_admin, on_pods, lab
):
    before = lab.submit()
    client.force_login(team_admin)
    path = f"/api/v1/queues/{on_pods.name}"
    answer = client.patch(path, {"defaults": POD, "slots": 7}, content_type="application/json")
    assert (answer.status_code, answer.json()["slots"]) == (200, 7)
    kept = {**POD, "tolerations": [{"key": "spot", "operator": "Exists"}]}
    assert client.get(path).json()["defaults"] == kept
    on_pods.refresh_from_db()
    lab.queue = on_pods
    assert (lab.submit().spec["image"], lab.submit(image="mine:1").spec["image"]) == (POD["image"], "mine:1")
    before.refresh_from_db()
    assert "image" not in before.spec
    assert AuditEntry.objects.filter(act="queue.change").count() == 2
    assert client.patch(path, {"defaults": {}}, content_type="application/json").json()["defaults"] == {}


@pytest.mark.django_db
@pytest.mark.parametrize("who", ["teammate", "viewer", "stranger"])
def test_nobody_else_changes_them(client, people, queue, who):
    client.force_login(getattr(people, who))
    answer = client.patch(f"/api/v1/queues/{queue.name}", {"defaults": POD}, content_type="application/json")
    assert answer.status_code in (403, 404)
    client.post(f"/queues/{queue.name}/template", {"yaml": "defaults: {memory: 64Gi}"})
    queue.refresh_from_db()
    assert queue.defaults == {}


@pytest.mark.django_db
def test_every_wrong_default_is_named_and_nothing_of_the_change_is_kept(client, team_admin, queue):
    client.force_login(team_admin)
    sent = {
        "slots": 3,
        "defaults": {"memory": "512GB", "labels": {"muster.dev/run": "x"}, "command": "true", "gpuz": 1},
    }
    answer = client.patch(f"/api/v1/queues/{queue.name}", sent, content_type="application/json")
    assert answer.status_code == 422
    assert [one["field"] for one in answer.json()["errors"]] == [
        "defaults.memory", "defaults.labels.muster.dev/run", "defaults.command", "defaults.gpuz",
    ]  # fmt: skip
    queue.refresh_from_db()
    assert (queue.nominal, queue.defaults) == (8, {})
