"""A queue's template: versions that jobs keep, two administrators at once, who may set what, and what may be named."""

import pytest
import yaml

from accounts.models import AuditEntry, Membership, Role
from common.errors import Conflict, InvalidInput, InvalidSpec, NotAllowed, Refused, Unreachable
from jobs import services as jobs
from jobs.clusters import Checked, adapters
from jobs.clusters.memory import MemoryCluster
from jobs.control import template_check
from jobs.control.store import plan_of
from jobs.scheduling import scheduler
from jobs.submission import pods
from queues import allowed, services, templates
from queues.models import AllowedObject, Queue, QueueVersion
from tests.conftest import make_user

pytestmark = pytest.mark.django_db
NODE = {"node": {"cpus": "96", "memory": "512Gi", "resource": "nvidia.com/mig-1g.10gb"}}
SIDECAR = {"pods": {"sidecars": [{"name": "proxy", "image": "proxy:1"}]}}


@pytest.fixture
def boss(team, people):
    user = make_user("boss")
    Membership.objects.create(user=user, team=team, role=Role.ADMIN)
    return user


@pytest.fixture
def queue(on_pods):
    return on_pods


def save(queue: Queue, by, expected: int | None = None, defaults=None, **template) -> Queue:
    found = pods.checked(queue, template, by=by)
    row = services.set_template(queue=queue, by=by, defaults=defaults, template=found, expected=expected)
    queue.refresh_from_db()
    return row


def allow(queue: Queue, root, kind: str, name: str) -> AllowedObject:
    return allowed.allow(team=queue.team, by=root, cluster=queue.cluster, kind=kind, name=name)


def test_a_job_keeps_the_version_that_it_was_submitted_with(lab, queue, boss):
    save(queue, boss, **SIDECAR)
    lab.queue = queue
    job = lab.submit()
    save(queue, boss, pods={"sidecars": [{"name": "other", "image": "other:1"}]})
    assert [one["image"] for one in plan_of(job, 1).roles[0].shape.sidecars] == ["proxy:1"]
    assert [one["image"] for one in plan_of(lab.submit(), 1).roles[0].shape.sidecars] == ["other:1"]
    assert (job.template.number, templates.version(queue).number) == (2, 3)
    assert templates.changes(job.template.content, templates.content(queue)) == [
        "pods.sidecars.0.image", "pods.sidecars.0.name",
    ]  # fmt: skip


def test_jobs_of_one_content_share_a_version_and_what_another_release_wrote_gets_one(lab, queue):
    assert lab.submit().template == lab.submit().template
    Queue.objects.filter(pk=queue.pk).update(defaults={"priority": 3})  # a release that knows no versions
    queue.refresh_from_db()
    lab.queue = queue
    assert [lab.submit().template.number, QueueVersion.objects.count()] == [2, 2]


def test_a_job_from_before_versions_is_launched_as_its_queue_is_without_a_template(lab, queue):
    job = lab.submit()
    type(job).objects.filter(pk=job.pk).update(template=None)
    job.refresh_from_db()
    assert plan_of(job, 1).roles[0].shape.sidecars == () and plan_of(job, 1).node_slots == queue.gpus_per_node


def test_the_second_of_two_administrators_is_told_what_changed(queue, boss, people):
    save(queue, people.admin, expected=1, defaults={"image": "first:1"}, **NODE)
    with pytest.raises(Conflict) as caught:
        save(queue, boss, expected=1, defaults={"image": "second:1"})
    assert str(caught.value) == (
        "queue default was changed by root since version 1; it is at version 2 now: defaults.image, node.cpus, node.memory, "
        "node.resource. Look at that one, then save again"
    )  # fmt: skip
    assert queue.defaults == {"image": "first:1"}
    save(queue, boss, expected=2, defaults={"image": "second:1"})
    assert [one.created_by and one.created_by.username for one in queue.versions.all()] == [None, "root", "boss"]


def test_going_back_to_an_earlier_content_is_a_new_version(queue, boss):
    for image in ("a:1", "b:1", "a:1"):
        save(queue, boss, defaults={"image": image})
    assert [one.content["defaults"].get("image") for one in queue.versions.all()] == [None, "a:1", "b:1", "a:1"]
    assert templates.version(queue).number == 4


def test_another_number_of_gpus_is_a_version_and_the_old_number_again_is_one_too(lab, queue, boss):
    for count in (8, 4, 8):
        services.change(queue=queue, by=boss, gpus_per_node=count)
    queue.refresh_from_db()
    newest = templates.newest(queue)
    assert newest.content["gpus_per_node"] == 8
    save(queue, boss, expected=newest.number, shm_per_gpu="8Gi")
    assert [changed for _, changed in templates.history(queue, most=3)] == [
        ["shm_per_gpu"], ["gpus_per_node"], ["gpus_per_node"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "part", [{"host_network": True}, {"security": {"privileged": True}}, {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}]
)  # fmt: skip
def test_only_platform_administrators_give_pods_more_of_their_node(queue, boss, people, part):
    with pytest.raises(InvalidInput, match="a platform administrator can set it"):
        save(queue, boss, pods=part)
    save(queue, people.admin, pods=part)
    save(queue, boss, pods=part, shm_per_gpu="8Gi")  # what is there may stay
    assert queue.template == {"pods": part, "shm_per_gpu": "8Gi"}
    with pytest.raises(NotAllowed):
        save(queue, people.owner, pods=part)


def test_what_a_platform_administrator_put_there_may_stay_only_as_it_is(queue, boss, people):
    first = {"name": "first", "image": "a:1"}
    tool = {"name": "tool", "image": "ours:1", "securityContext": {"privileged": True}}
    save(queue, people.admin, pods={"sidecars": [first, tool]})
    save(queue, boss, pods={"sidecars": [tool]})  # at another place
    with pytest.raises(InvalidInput, match="a platform administrator can set it"):
        save(queue, boss, pods={"sidecars": [{**tool, "image": "theirs:1"}]})


def test_a_template_that_was_judged_by_another_one_is_not_saved(queue, boss, people):
    save(queue, people.admin, pods={"host_network": True})
    found = pods.checked(queue, {"pods": {"host_network": True}, "shm_per_gpu": "8Gi"}, by=boss)
    services.set_template(queue=Queue.objects.get(pk=queue.pk), by=people.admin, template={})
    with pytest.raises(
        Conflict, match=r"was changed by root since version 2; it is at version 3 now: pods\.host_network"
    ):
        services.set_template(queue=queue, by=boss, template=found)
    queue.refresh_from_db()
    assert queue.template == {}


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("service_account", {"service_account": "train"}),
        ("pull_secret", {"pull_secrets": ["train"]}),
        ("secret", {"volumes": [{"name": "a", "secret": {"secretName": "train"}}]}),
        ("config_map", {"sidecars": [{"name": "p", "image": "p", "envFrom": [{"configMapRef": {"name": "train"}}]}]}),
        ("claim", {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "train"}}]}),
    ],
)
def test_only_what_is_allowed_to_the_team_may_be_named(queue, boss, people, lab, kind, part):
    with pytest.raises(InvalidInput, match="none is allowed yet; a platform administrator allows it"):
        save(queue, people.admin, pods=part)
    row = allow(queue, people.admin, kind, "train")
    save(queue, boss, pods=part)
    lab.queue = queue
    job = lab.submit()
    allowed.forbid(row=row, by=people.admin)
    with pytest.raises(InvalidSpec, match="that team nlp may name on cluster"):
        lab.submit()
    scheduler.schedule_queue(queue.pk)
    lab.visit(job, times=4)  # the attempt that has not begun does not begin
    assert job.phase == "failed" and "may name on cluster" in job.message


@pytest.mark.parametrize("name", ["muster", "muster-reader", "muster-agent-1", "m-42-abcdef-1", "m-1"])
def test_muster_s_own_objects_can_never_be_named(queue, boss, people, name):
    with pytest.raises(InvalidInput, match="kept for Muster's own objects"):
        allow(queue, people.admin, "secret", name)
    for part in (
        {"service_account": name},
        {"pull_secrets": [name]},
        {"volumes": [{"name": "a", "secret": {"secretName": name}}]},
        {"volumes": [{"name": "a", "projected": {"sources": [{"secret": {"name": name}}]}}]},
        {"init_containers": [{"name": "p", "image": "p", "envFrom": [{"secretRef": {"name": name}}]}]},
    ):
        AllowedObject.objects.create(team=queue.team, cluster=queue.cluster, kind="secret", name=f"x{name}")
        with pytest.raises(InvalidInput, match="one of Muster's own objects"):
            save(queue, people.admin, pods=part)
        AllowedObject.objects.all().delete()


def test_a_job_names_an_allowed_account_and_gets_its_token_only_where_the_list_says_so(queue, people, lab):
    with pytest.raises(InvalidSpec, match="is no service account that team nlp may name on cluster"):
        lab.submit(service_account="train")
    allow(queue, people.admin, "service_account", "train")
    plan = plan_of(lab.submit(service_account="train"), 1)
    assert (plan.roles[0].shape.service_account, plan.token_accounts) == ("train", frozenset())
    allow(queue, people.admin, "token", "train")
    assert plan_of(lab.submit(service_account="train"), 1).token_accounts == {"train"}
    with pytest.raises(InvalidSpec) as caught:
        lab.submit(roles={"worker": {"service_account": "other"}})
    assert [one.field for one in caught.value.problems] == ["roles.worker.service_account"]


def test_an_allowed_name_is_of_one_team_and_one_cluster(queue, people):
    allow(queue, people.admin, "secret", "train")
    other = people.stranger.memberships.get().team
    assert allowed.problems([("p", "secret", "train")], team=queue.team, cluster=queue.cluster) == []
    assert allowed.problems([("p", "secret", "train")], team=other, cluster=queue.cluster)
    assert allowed.problems([("p", "secret", "train")], team=queue.team, cluster="elsewhere")
    with pytest.raises(NotAllowed):
        allow(queue, people.owner, "secret", "more")


def test_locked_fields_are_refused_at_submission(queue, boss, lab):
    save(queue, boss, defaults={"image": "ours:1"}, locked=["image"])
    lab.queue = queue
    with pytest.raises(InvalidSpec, match="is set by queue default for all of its jobs; remove it"):
        lab.submit(image="mine:1")
    assert lab.submit().spec["image"] == "ours:1"


@pytest.mark.parametrize("empty", [[], None, ""])
def test_a_locked_field_cannot_be_emptied(queue, boss, lab, empty):
    save(queue, boss, defaults={"tolerations": ["gpu=true:NoSchedule"]}, locked=["tolerations"])
    lab.queue = queue
    assert lab.submit(tolerations=empty).spec["tolerations"]


def test_where_there_are_no_pods_a_template_is_refused(people, settings):
    local = Queue.objects.create(name="plain", team=people.owner.memberships.get().team, cluster="plain", nominal=1)
    settings.CLUSTERS = {"plain": {"BACKEND": "jobs.clusters.local.LocalCluster", "OPTIONS": {"ROOT": "/nowhere"}}}
    with pytest.raises(InvalidInput, match="has no meaning on cluster plain"):
        pods.checked(local, NODE, by=people.admin)


class Asked(MemoryCluster):
    """Answers as it is told to."""

    answer: Checked | Exception = Checked("valid")
    plans: list = []

    def check(self, plan):
        self.plans.append(plan)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (Checked("valid"), "valid"),
        (Checked("invalid", "spec.containers[1].image: Required value"), "invalid"),
        (Unreachable("no answer"), "not_checked"),
        (Refused("this namespace does not exist"), "not_checked"),
    ],
)
def test_the_cluster_is_asked_once_for_each_content(queue, boss, settings, answer, state):
    settings.CLUSTERS = {queue.cluster: {"BACKEND": f"{__name__}.Asked"}}
    cluster = adapters.get(queue.cluster)
    cluster.answer, cluster.plans = answer, []
    for image in ("a:1", "b:1", "a:1"):
        save(queue, boss, defaults={"image": image}, **SIDECAR)
    first, _, again = rows = [one for one in queue.versions.all() if one.number > 1]
    for row in (*rows, *rows):
        row.refresh_from_db()
        template_check.check(row)
    first.refresh_from_db()
    again.refresh_from_db()
    assert first.check_state == again.check_state == state
    assert len(cluster.plans) == (2 if state in ("valid", "invalid") else 3)
    role = cluster.plans[0].roles[0]
    assert (role.shape.image, role.shape.sidecars[0]["name"]) == ("a:1", "proxy")


def test_the_api_changes_a_template_lists_its_versions_and_what_is_allowed(client, boss, people, queue):
    client.force_login(boss)
    path = f"/api/v1/queues/{queue.name}"
    send = {"content_type": "application/json"}
    made = client.patch(path, {"template": NODE, "version": 1}, **send).json()
    assert (made["template"], made["version"], made["check_state"]) == (NODE, 2, "")
    late = client.patch(path, {"template": {}, "version": 1}, **send)
    assert late.status_code == 409 and "node.cpus" in late.json()["detail"]
    wrong = client.patch(path, {"template": {"pods": {"host_network": True}, "shm_per_gpu": 1}}, **send)
    assert [one["field"] for one in wrong.json()["errors"]] == ["shm_per_gpu"]
    found = client.get(f"{path}/versions").json()["results"]
    assert [(one["number"], one["created_by"], one["changed"]) for one in found] == [
        (2, "boss", ["node.cpus", "node.memory", "node.resource"]), (1, None, []),
    ]  # fmt: skip
    body = {"cluster": queue.cluster, "kind": "secret", "name": "train"}
    assert client.post("/api/v1/teams/nlp/allowed", body, **send).status_code == 403
    client.force_login(people.admin)
    row = client.post("/api/v1/teams/nlp/allowed", body, **send).json()
    assert client.get("/api/v1/teams/nlp/allowed").json()["results"] == [row]
    assert client.delete(f"/api/v1/teams/nlp/allowed/{row['id']}").status_code == 204
    assert set(AuditEntry.objects.values_list("act", flat=True)) >= {"queue.change", "object.allow", "object.forbid"}


def test_the_page_saves_the_form_or_the_yaml_and_each_follows_the_other(client, boss, people, queue):
    client.force_login(boss)
    path = f"/queues/{queue.name}/template"
    page = client.get(path).content.decode()
    assert 'name="defaults_image"' in page and 'name="version" value="1"' in page
    form = {
        "version": "1",
        "yaml": "",
        "shown": "",
        "defaults_image": "ours:1",
        "defaults_node_selector": "pool=a100\r\nzone=z1",
        "locked": "image",
        "storage_checkpoints_size_per_gpu": "50Gi",
    }
    assert client.post(path, form).status_code == 302
    queue.refresh_from_db()
    assert queue.defaults == {"image": "ours:1", "node_selector": {"pool": "a100", "zone": "z1"}}
    assert queue.template == {"storage": {"checkpoints": {"size_per_gpu": "50Gi"}}, "locked": ["image"]}
    shown = yaml.safe_dump({"defaults": queue.defaults, **queue.template}, sort_keys=False)
    text = shown.replace("ours:1", "theirs:1") + "shm_per_gpu: 8Gi\n"
    side = client.post(
        path, {"yaml": text, "shown": shown}, headers={"HX-Request": "true", "HX-Target": "template-form"}
    )
    assert 'value="theirs:1"' in side.text and 'value="8Gi"' in side.text
    other = {"yaml": text, "shown": shown, "defaults_image": "third:1", "defaults_node_selector": "pool=a100"}
    side = client.post(path, other, headers={"HX-Request": "true", "HX-Target": "template-yaml"})
    assert "third:1" in side.text and "zone" not in side.text
    assert client.post(path, {"version": "2", "yaml": text, "shown": shown}).status_code == 302
    queue.refresh_from_db()
    assert (queue.defaults["image"], queue.template["shm_per_gpu"]) == ("theirs:1", "8Gi")
    late = client.post(path, {"version": "2", "yaml": "defaults: {image: late:1}", "shown": shown})
    assert late.status_code == 409 and "defaults.image" in late.text and "late:1" in late.text
    for wrong, words in (
        ("a: &x 1", "has an anchor"),
        ("- 1", "must be parts such as"),
        ("pods: {sidecars: 3}", "must be a list"),
        ("noed: {}", "noed is not known"),
    ):
        answer = client.post(path, {"version": "3", "yaml": wrong, "shown": shown})
        assert answer.status_code == 422 and words in answer.text and wrong in answer.text.replace("&amp;", "&")
    client.force_login(people.viewer)
    assert "theirs:1" in client.get(path).text and client.post(path, form).status_code == 403


def test_a_job_s_page_shows_its_version_and_what_changed_since(client, boss, lab, queue):
    save(queue, boss, **SIDECAR)
    lab.queue = queue
    job = lab.submit()
    save(queue, boss, shm_per_gpu="8Gi")
    client.force_login(lab.user)
    page = client.get(f"/jobs/{job.pk}").text
    assert "version 2" in page and "changed since: pods.sidecars.0.image, pods.sidecars.0.name, shm_per_gpu" in page
    assert client.get(f"/api/v1/jobs/{job.pk}").json()["template_version"] == 2
    assert jobs.preview(user=lab.user, queue=queue, sent={"command": "torchrun train.py"}).queue == queue
