"""Volumes of teams: who may make them, how jobs mount them, what keeps one from being deleted, what a cluster says of them."""

from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import AuditEntry, Membership, Role, Team, Token
from common import faultpoints
from common.errors import Conflict, InvalidInput, InvalidSpec
from jobs import services as jobs
from jobs.clusters import adapters
from jobs.control import volume_visits
from jobs.control.store import plan_of
from jobs.core.plan import Claim
from jobs.ingest import apply
from jobs.scheduling import scheduler
from queues import allowed
from queues.models import Queue
from tests.conftest import make_user
from tests.db.accounts.conftest import Api
from tests.support.builders import batch, identity, item
from volumes import services
from volumes.models import Volume

pytestmark = pytest.mark.django_db
PATH = "/teams/nlp/volumes"
ROLES = ("boss", "owner", "viewer", "stranger", "root")


@pytest.fixture
def queue(on_pods):
    return on_pods


@pytest.fixture
def boss(team, people):
    user = make_user("boss")
    Membership.objects.create(user=user, team=team, role=Role.ADMIN)
    return user


@pytest.fixture
def api(client, people, boss):
    """`api("viewer")` sends a token of that user."""

    def of(name: str) -> Api:
        user = boss if name == "boss" else {one.username: one for one in vars(people).values()}[name]
        return Api(client, Token.issue(user, "test", scope="manage")[1])

    return of


@pytest.fixture
def volume(team, boss, queue):
    def make(name: str = "datasets", **values) -> Volume:
        values = {"cluster": queue.cluster, **({} if values.get("claim") else {"size": "64Gi"}), **values}
        return services.create(team=team, by=boss, name=name, **values)

    return make


@pytest.fixture
def cluster(lab, queue):
    """The lab's cluster is also the one that tasks ask about storage."""
    lab.cluster = adapters.get(queue.cluster)
    lab.cluster.clock, lab.cluster.run_seconds = lab.clock.seconds, 1e9
    return lab.cluster


@pytest.fixture
def local(tmp_path, settings):
    """The folder of a local cluster named `plain`."""
    settings.CLUSTERS = {"plain": {"BACKEND": "jobs.clusters.local.LocalCluster", "OPTIONS": {"ROOT": str(tmp_path)}}}
    return tmp_path


def visited(row: Volume, after: int = 60) -> Volume:
    volume_visits.visit_all(now=timezone.now() + timedelta(seconds=after))
    row.refresh_from_db()
    return row


def test_what_each_role_may_do(api, volume, queue):
    volume()
    sent = {"cluster": queue.cluster, "size": "1Gi"}
    statuses = [api(name).get(PATH).status_code for name in ROLES]
    assert statuses == [200, 200, 200, 404, 200]
    made = [api(name).post(PATH, {**sent, "name": f"n{number}"}).status_code for number, name in enumerate(ROLES)]
    assert made == [201, 403, 403, 404, 201]
    changed = [api(name).patch(f"{PATH}/datasets", {"size": "65Gi"}).status_code for name in ROLES]
    assert changed == [200, 403, 403, 404, 200]
    removed = [api(name).delete(f"{PATH}/n{number}").status_code for number, name in ((0, "owner"), (0, "boss"))]
    assert removed == [403, 202]
    assert AuditEntry.objects.filter(act__startswith="volume.").count() == 5


def test_its_claim_is_made_with_the_first_job_that_mounts_it(lab, cluster, volume, queue):
    row = volume(mount_path="/data", storage_class="shared")
    assert visited(row).state == "unused"
    lab.running(volumes=["datasets"])
    name = "muster-volume-nlp.datasets"
    assert cluster.claims == {name: Claim(name, "64Gi", "shared", "ReadWriteMany", "datasets", "nlp")}
    row = visited(row, 120)
    assert (row.state, row.message) == ("pending", "waiting for a provisioner")
    cluster.bound[name] = "64Gi"
    row = visited(row, 180)
    assert (row.state, row.capacity, row.message) == ("bound", "64Gi", "")


@pytest.mark.parametrize(
    ("asked", "values", "path", "read_only"),
    [
        ("datasets", {}, "", False),
        ("datasets", {"mount_path": "/data"}, "/data", False),
        ("datasets:/mine", {"mount_path": "/data"}, "/mine", False),
        ("datasets:/mine:ro", {}, "/mine", True),
        ("datasets:ro", {"mount_path": "/data"}, "/data", True),
        ("datasets", {"is_read_only": True}, "", True),
        ("datasets", {"access_mode": "ReadOnlyMany"}, "", True),
    ],
)
def test_how_a_job_mounts_it(lab, volume, asked, values, path, read_only):
    volume(**values)
    plan = plan_of(lab.submit(volumes=[asked]), 1)
    assert (plan.volumes, "datasets" in plan.read_only) == ({"datasets": path}, read_only)
    assert plan.claims["datasets"].name == "muster-volume-nlp.datasets"


def test_a_volume_in_use_is_not_deleted_and_one_that_is_being_deleted_is_not_used(lab, cluster, volume, boss):
    row = volume()
    job = lab.running(volumes=["datasets"], name="train")
    with pytest.raises(Conflict, match="volume datasets is used by job train; end or change these first"):
        services.remove(volume=row, by=boss)
    lab.finish(job, 0, 0)
    assert services.remove(volume=row, by=boss).state == "removing"
    with pytest.raises(InvalidSpec, match="is being deleted"):
        lab.submit(volumes=["datasets"])
    with pytest.raises(Conflict, match="is being deleted"):
        services.change(volume=row, by=boss, size="65Gi")
    assert "muster-volume-nlp.datasets" in cluster.claims
    volume_visits.visit_all(now=timezone.now())
    assert cluster.claims == {} and Volume.objects.count() == 1  # until the cluster has seen it go
    volume_visits.visit_all(now=timezone.now())
    assert not Volume.objects.exists()


def test_an_unreachable_cluster_delays_a_deletion(lab, cluster, volume, boss):
    row = volume()
    services.remove(volume=row, by=boss)
    cluster.is_reachable = False
    volume_visits.visit_all(now=timezone.now())
    assert Volume.objects.exists()
    cluster.is_reachable = True
    volume_visits.visit_all(now=timezone.now())
    assert not Volume.objects.exists()


def test_an_existing_claim_is_adopted_if_it_is_allowed_and_stays(lab, cluster, volume, boss, people, queue, team):
    with pytest.raises(InvalidInput, match="is no claim that team nlp may name on cluster"):
        volume(claim="scratch")
    allowed.allow(team=team, by=people.admin, cluster=queue.cluster, kind="claim", name="scratch")
    with pytest.raises(InvalidInput, match="is that of the existing claim; omit it"):
        volume(claim="scratch", size="1Gi")
    row = volume(claim="scratch")
    row = visited(row)
    assert (row.state, row.message) == ("lost", f"there is no claim scratch on cluster {queue.cluster}")
    cluster.claims["scratch"], cluster.bound["scratch"] = Claim("scratch"), "1Ti"
    assert visited(row, 120).capacity == "1Ti"
    assert plan_of(lab.submit(volumes=["datasets"]), 1).claims["datasets"] == Claim(
        "scratch", "", "", "ReadWriteMany", "datasets", "nlp"
    )
    jobs.cancel(job=jobs.Job.objects.get(), by=lab.user)
    lab.visit(jobs.Job.objects.get(), times=2)
    services.remove(volume=row, by=boss)
    volume_visits.visit_all(now=timezone.now())
    assert "scratch" in cluster.claims and not Volume.objects.exists()


def test_it_grows_and_never_shrinks(lab, cluster, volume, boss):
    row = volume()
    lab.running(volumes=["datasets"])
    cluster.bound[row.claim_name] = "64Gi"
    with pytest.raises(InvalidInput, match="is less than 64Gi: a volume can grow and never shrink"):
        services.change(volume=row, by=boss, size="32Gi")
    services.change(volume=row, by=boss, size="1Ti")
    assert visited(visited(row), 120).capacity == "1Ti"


def test_names_of_two_teams_do_not_meet(lab, volume, people, queue):
    volume()
    other = people.stranger.memberships.get().team
    services.create(team=other, by=people.stranger, name="models", cluster=queue.cluster, size="1Gi")
    services.create(team=other, by=people.stranger, name="datasets", cluster=queue.cluster, size="1Gi")
    plan = plan_of(lab.submit(volumes=["datasets", "models"]), 1)
    assert {name: one.name for name, one in plan.claims.items()} == {"datasets": "muster-volume-nlp.datasets"}


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"name": "Data"}, "name", "must be 1 to 40 of a-z, 0-9 and -, not beginning or ending with -"),
        ({"size": "512GB"}, "size", "is not understood; write 512Gi"),
        ({"size": ""}, "size", "is missing; give a size such as 512Gi, or the name of an existing claim"),
        ({"cluster": "nope"}, "cluster", "must be one of local"),
        ({"access_mode": "RWX"}, "access_mode", "is not known; choose from ReadWriteMany, ReadOnlyMany, ReadWriteOnce"),
        ({"storage_class": "fast"}, "storage_class", "does not exist; the cluster has shared"),
        ({"mount_path": "/dev/shm"}, "mount_path", "/dev/shm belongs to the image; choose another place, such as /data"),
        ({"mount_path": "/muster/agent"}, "mount_path", "/muster/agent belongs to the image; choose another place, such as /data"),
        ({"mount_path": "data"}, "mount_path", "needs an absolute path after the colon, without . and .. and without a second / beside the first"),
    ],
)  # fmt: skip
def test_what_no_volume_can_be(api, queue, values, field, words):
    sent = {"name": "datasets", "cluster": queue.cluster, "size": "1Gi", **values}
    answer = api("boss").post(PATH, {name: value for name, value in sent.items() if value})
    assert answer.status_code == 422
    assert [(one["field"], one["message"]) for one in answer.json()["errors"]] == [(field, words)]


def test_one_node_s_volume_is_refused_to_several_replicas_and_another_cluster_s_to_all(lab, volume, queue, settings):
    volume("single", access_mode="ReadWriteOnce")
    with pytest.raises(InvalidSpec, match="is ReadWriteOnce: one node mounts it, and the job has 2 replicas"):
        lab.submit(volumes=["single"])
    lab.submit(volumes=["single"], nodes=1)
    settings.CLUSTERS = {**settings.CLUSTERS, "elsewhere": settings.CLUSTERS[queue.cluster]}
    volume("far", cluster="elsewhere")
    with pytest.raises(InvalidSpec, match="is on cluster elsewhere, and queue default runs its jobs on local"):
        lab.submit(volumes=["far"])


def test_two_volumes_at_one_path_are_refused(lab, volume):
    volume("a", mount_path="/data")
    volume("b", mount_path="/data/")
    for named, wrong in ((["a", "b"], "b"), (["a", "other:/data"], "other")):
        with pytest.raises(InvalidSpec, match="is mounted at /data, where volume a is") as caught:
            lab.submit(volumes=named)
        assert [one.value for one in caught.value.problems] == [wrong]
    lab.submit(volumes=["a", "b:/mnt/b"])


def test_on_a_local_cluster_it_is_a_folder(team, boss, local):
    row = services.create(team=team, by=boss, name="datasets", cluster="plain", size="1Gi")
    assert visited(row).state == "unused"
    folder = local / "volumes" / "nlp" / "datasets"
    folder.mkdir(parents=True)
    (folder / "data").write_text("1")
    assert visited(row, 120).state == "bound"
    services.remove(volume=row, by=boss)
    volume_visits.visit_all(now=timezone.now())
    assert not folder.exists() and not Volume.objects.exists()


def test_the_pages_make_change_and_delete_a_volume(client, boss, lab, queue, cluster):
    client.force_login(boss)
    form = {
        "name": "datasets",
        "cluster": queue.cluster,
        "size": "64Gi",
        "access_mode": "ReadWriteMany",
        "mount_path": "/data",
    }
    assert client.post("/teams/nlp/volumes", form).status_code == 302
    again = client.post("/teams/nlp/volumes", form)
    assert again.status_code == 422 and "choose another name" in again.text
    assert client.post("/teams/nlp/volumes", {**form, "name": "b", "storage_class": "fast"}).status_code == 422
    job = lab.submit(volumes=["datasets"])
    page = client.get("/teams/nlp/volumes/datasets").text
    assert f"job {job.name}" in page and "Possible once nothing uses it any longer" in page
    changed = client.post(
        "/teams/nlp/volumes/datasets", {"act": "change", "size": "65Gi", "mount_path": "", "is_read_only": "on"}
    )
    assert changed.status_code == 302
    row = Volume.objects.get()
    assert (row.size, row.mount_path, row.is_read_only) == ("65Gi", "", True)
    assert client.post("/teams/nlp/volumes/datasets", {"act": "remove"}).status_code == 422
    client.force_login(lab.user)
    assert client.post("/teams/nlp/volumes", form).status_code == 403
    assert "datasets" in client.get("/teams/nlp/volumes").text


def test_a_queue_s_volumes_count_as_use(volume, queue, boss):
    row = volume()
    Queue.objects.filter(pk=queue.pk).update(defaults={"volumes": ["datasets:/data:ro"]})
    assert services.used_by(row) == ["queue default"]
    assert scheduler.schedule() == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_while_it_deletes_a_folder_is_made_up_for(team, boss, local, monkeypatch, when):
    row = services.create(team=team, by=boss, name="datasets", cluster="plain", size="1Gi")
    folder = local / "volumes" / "nlp" / "datasets"
    folder.mkdir(parents=True)
    services.remove(volume=row, by=boss)

    @contextmanager
    def dies(name: str):
        if when == "before":
            raise KeyboardInterrupt(name)
        yield
        raise KeyboardInterrupt(name)

    with monkeypatch.context() as patched:
        patched.setattr(faultpoints, "around", dies)
        with pytest.raises(KeyboardInterrupt, match=r"local\.volume"):
            volume_visits.visit_all(now=timezone.now())
    assert Volume.objects.exists() and folder.exists() == (when == "before")
    volume_visits.visit_all(now=timezone.now())
    assert not folder.exists() and not Volume.objects.exists()


def test_agents_say_how_full_a_volume_is(lab, cluster, volume, queue):
    row = volume()
    other = services.create(team=Team.objects.get(name="vision"), by=make_user("r", is_superuser=True), name="datasets",
                            cluster=queue.cluster, size="1Gi")  # fmt: skip
    job = lab.running(volumes=["datasets"])
    said = {
        "datasets": {"total": 100, "free": 40, "written_at": 1_763_700_000},
        "unknown": {"total": 1, "free": 1, "written_at": 1},
    }
    apply.apply_batch(identity=identity(job), batch=batch(1, item("volumes", volumes=said)))
    row.refresh_from_db()
    other.refresh_from_db()
    assert (row.total_bytes, row.free_bytes, row.written_at.timestamp()) == (100, 40, 1_763_700_000)
    assert row.used_at is not None and other.used_at is None
    wrong = {"datasets": {"total": "many", "free": 1, "written_at": 1}}
    with pytest.raises(InvalidInput, match="must be a whole number"):
        apply.apply_batch(identity=identity(job), batch=batch(2, item("volumes", volumes=wrong)))
