"""The pages of a cluster's nodes: what is free, idle, broken and in use, for whom, and what names do to them."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Team, Token
from jobs import clusters
from jobs.control import node_rows
from jobs.core.failure_kinds import Kind
from jobs.core.node_seen import NodeSeen
from jobs.ingest import apply
from jobs.models import AttemptFailure, ClusterLook, ClusterNode, Job, NodeHistory, Rank, Replica
from queues import excluded
from queues.models import Queue
from tests.support.builders import Lab, batch, identity, item

pytestmark = pytest.mark.django_db
GPU = "nvidia.com/gpu"
HOSTILE = "<img src=x onerror=alert(1)>\"'&</a>"
PAGE, PART = "/clusters/local", {"HX-Request": "true", "HX-Target": "section#nodes"}
MOST_QUERIES = 24  # of a page, with those of the session, whatever the size of the cluster


def node(name: str, gpus: int = 8, **more) -> NodeSeen:
    return NodeSeen(name, devices={GPU: gpus}, **{"others": 0, "product": "H100", **more})


@pytest.fixture
def gpus(on_pods):
    """A queue of GPUs on a cluster of four nodes, written as beat does."""
    Queue.objects.filter(pk=on_pods.pk).update(resource="gpu", gpus_per_node=8, nominal=64)
    on_pods.refresh_from_db()
    clusters.get("local").listed = [node(f"gpu-{number}") for number in (1, 2, 10)]
    node_rows.write("local")
    return on_pods


@pytest.fixture
def lab(gpus, people) -> Lab:
    return Lab(gpus, people.owner)


def on_nodes(job: Job, *names: str) -> Job:
    for index, name in enumerate(names):
        Replica.objects.filter(job=job, index=index).update(node=name, last_batch_at=timezone.now())
    return job


def idle(job: Job, *ranks: int, minutes: float = 6) -> None:
    rows = Rank.objects.filter(job=job)
    rows.update(state="running", gpu=0.9)
    rows.filter(rank__in=ranks).update(gpu=0.0, gpu_idle_since=timezone.now() - timedelta(minutes=minutes))


@pytest.fixture
def theirs(gpus, people) -> Job:
    """A job of another team on the same cluster."""
    other = Queue.objects.create(
        name="theirs",
        team=Team.objects.get(name="vision"),
        cluster="local",
        nominal=64,
        resource="gpu",
        gpus_per_node=8,
    )
    return on_nodes(Lab(other, people.stranger).running(name="secret-plan", nodes=1, nproc_per_node=4), "gpu-2")


def test_the_page_says_what_is_free_and_who_holds_the_rest(owner, lab, theirs):
    job = on_nodes(lab.running(name="train", nodes=2, nproc_per_node=6), "gpu-1", "gpu-10")
    idle(job, 0, 1, 2)
    page = owner.get(PAGE).text
    assert "8 free, no node has more than 4" in page
    assert "3 nodes" in page and "24 GPUs" in page and "16 held by Muster" in page
    assert "3 of those held are idle for more than 5 minutes" in page
    assert 'aria-label="8 GPUs: 6 held by train (3 idle), 2 free"' in page
    assert 'aria-label="8 GPUs: 4 held by another team&#x27;s job, 4 free"' in page
    assert f'href="/jobs/{job.pk}">train</a>' in page and "secret-plan" not in page and "vision" not in page
    colour = f"c{job.pk % 8}"
    assert f'<i class="{colour} still"></i>' * 3 + f'<i class="{colour}"></i>' * 3 + '<i class="free"></i>' * 2 in page
    assert page.index(">gpu-2<") < page.index(">gpu-10<"), "in the order of their numbers"
    assert "default" in page and "12 of 64 GPUs" in page


def test_a_gpu_is_idle_only_after_five_minutes_and_while_its_agent_reports(owner, lab):
    job = on_nodes(lab.running(nodes=1, nproc_per_node=4), "gpu-1")
    idle(job, 0, 1, minutes=4)
    assert "are idle" not in owner.get(PAGE).text
    idle(job, 0, 1, minutes=6)
    assert "2 of those held are idle" in owner.get(PAGE).text
    Replica.objects.filter(job=job).update(last_batch_at=timezone.now() - timedelta(minutes=3))
    assert "are idle" not in owner.get(PAGE).text


def test_what_agents_report_says_since_when_a_gpu_is_idle(lab):
    job = lab.running(nodes=1, nproc_per_node=1)

    def since(seq: int, use: float | None):
        sampled = {} if use is None else {"gpu": use}
        sent = item("sample", rank=0, at=timezone.now().timestamp(), **sampled, cpu=0.5)
        apply.apply_batch(identity=identity(job), batch=batch(seq, sent))
        return Rank.objects.get(job=job).gpu_idle_since

    assert since(1, 0.9) is None
    first = since(2, 0.01)
    assert first is not None and since(3, 0.0) == first and since(4, None) == first
    assert since(5, 0.4) is None


def test_broken_cordoned_excluded_and_silent_nodes_come_first(owner, lab, people, as_):
    listed = [node("gpu-1", is_cordoned=True), node("gpu-2", silence="kubelet stopped"), node("gpu-10"), node("gpu-11")]
    clusters.get("local").listed = [*listed, node("gpu-12", troubles=("DiskPressure",))]
    node_rows.write("local")
    excluded.exclude(cluster="local", name="gpu-10", reason="its fan is <b>broken</b>", by=people.admin)
    job = on_nodes(lab.running(nodes=1, nproc_per_node=8), "gpu-11")
    Rank.objects.filter(job=job).update(state="running")
    Rank.objects.filter(job=job, rank__lt=2).update(gpu_xid=79)
    page = owner.get(PAGE).text
    first = page[page.index("With a problem") : page.index("node-rows")]
    for words in ("cordoned", "not ready", "excluded", "2 GPUs with Xid or ECC errors", "DiskPressure"):
        assert words in first
    assert "8 free, all on one node" in page and "3 nodes take no new pods, with 24 GPUs that nobody holds" in page
    assert '<i class="out"></i>' * 8 in page and f'<i class="c{job.pk % 8} bad"></i>' * 2 in page
    assert "fan" not in page and "fan" not in owner.get(f"{PAGE}/nodes/gpu-10").text
    told = as_(people.admin).get(f"{PAGE}/nodes/gpu-10").text
    assert "its fan is &lt;b&gt;broken&lt;/b&gt;" in told and "kubelet stopped" in owner.get(f"{PAGE}/nodes/gpu-2").text


def test_a_node_that_failed_two_jobs_is_named(owner, lab):
    for number in (1, 2):
        job = lab.running(name=f"job-{number}", nodes=1, nproc_per_node=1)
        AttemptFailure.objects.create(
            job=job, attempt=1, kind=Kind.HARDWARE, certainty="sure", headline="Xid 79 of <job>", explanation="x", node="gpu-2",
            judged_at=timezone.now(),
        )  # fmt: skip
    assert "failed 2 jobs within a day" in owner.get(PAGE).text
    page = owner.get(f"{PAGE}/nodes/gpu-2").text
    assert "Xid 79 of &lt;job&gt;" in page and f'href="/jobs/{job.pk}"' in page


def test_without_the_right_to_list_pods_what_is_free_is_an_upper_bound(owner, gpus):
    clusters.get("local").listed = [node("gpu-1", others=None)]
    node_rows.write("local")
    page = owner.get(PAGE).text
    assert "At most 8 free, all on one node" in page and "What pods of others hold is not counted" in page
    clusters.get("local").listed = [node("gpu-1", others=3)]
    node_rows.write("local")
    page = owner.get(PAGE).text
    assert "5 free, all on one node" in page and "3 by pods of others" in page and "not counted" not in page


def test_pods_that_count_cpu_slots_hold_no_gpus_and_ended_ones_none_either(owner, lab, gpus):
    cpus = Queue.objects.create(name="cpus", team=gpus.team, cluster="local", nominal=64)
    on_nodes(Lab(cpus, lab.user).running(name="cpus", nodes=1, nproc_per_node=8), "gpu-1")
    ended = on_nodes(lab.running(name="ended", nodes=1, nproc_per_node=8), "gpu-2")
    Replica.objects.filter(job=ended).update(ended_at=timezone.now())
    assert "24 free" in owner.get(PAGE).text


def test_roles_hold_what_each_of_their_replicas_takes(owner, lab):
    """A head without GPUs, and workers; also as releases stored them that knew no slots of a role."""
    job = lab.running(name="ray", framework="ray", nodes=2, nproc_per_node=4)
    Replica.objects.filter(job=job).update(node="gpu-1")
    held = [(one["name"], one["slots"]) for one in job.roles]
    assert sum(slots for _, slots in held) > 0
    total = job.slots
    assert f"{24 - total} free" in owner.get(PAGE).text
    older = on_nodes(lab.running(name="older", nodes=1, nproc_per_node=4), "gpu-2")
    for roles in ([{key: value for key, value in one.items() if key != "slots"} for one in older.roles], None):
        Job.objects.filter(pk=older.pk).update(roles=roles)
        assert f"{24 - total - 4} free" in owner.get(PAGE).text


def test_filters_and_pages_leave_a_hundred_rows_at_most(owner, lab):
    clusters.get("local").listed = [
        node(f"gpu-{number}", product="L4" if number > 240 else "H100") for number in range(1, 251)
    ]
    node_rows.write("local")
    on_nodes(lab.running(nodes=1, nproc_per_node=8), "gpu-7")
    page = owner.get(PAGE).text
    assert page.count('<li><a href="/clusters/local/nodes/') == 100 and "1 to 100 of 250" in page
    last = owner.get(f"{PAGE}?page=3").text
    assert "201 to 250 of 250" in last and "gpu-250" in last
    assert "201 to 250" in owner.get(f"{PAGE}?page=999999").text
    few = owner.get(f"{PAGE}?q=L4").text
    assert ">gpu-241<" in few and ">gpu-1<" not in few
    assert ">gpu-7<" not in owner.get(f"{PAGE}?only=free&q=gpu-7").text
    assert "No node is like that" in owner.get(f"{PAGE}?only=idle").text
    part = owner.get(f"{PAGE}?q=gpu-24", headers=PART).text
    assert "<html" not in part and ">gpu-24<" in part and 'hx-get="/clusters/local?q=gpu-24"' in part
    assert "With a problem" not in part and "<h2>Nodes" in part
    for odd in ("page=-1", "page=x", "only=<b>", "q=" + "x" * 500, "page=99999999999999999999"):
        assert owner.get(f"{PAGE}?{odd}").status_code == 200


def test_the_cost_of_a_page_does_not_grow_with_the_cluster(owner, lab):
    counts = []
    for many in (10, 300):
        clusters.get("local").listed = [node(f"gpu-{number}") for number in range(many)]
        node_rows.write("local")
        on_nodes(lab.running(name=f"job-{many}", nodes=4, nproc_per_node=2), "gpu-0", "gpu-1", "gpu-2", "gpu-3")
        with CaptureQueriesContext(connection) as queries:
            assert owner.get(PAGE).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1] <= MOST_QUERIES, counts


def test_who_may_submit_sees_it_and_nobody_else(as_, people, gpus, theirs):
    for path in (PAGE, f"{PAGE}/nodes/gpu-1", "/api/v1/clusters/local/nodes", "/api/v1/clusters/local/nodes/gpu-1"):
        answers = {
            name: as_(getattr(people, name)).get(path).status_code for name in ("owner", "stranger", "admin", "viewer")
        }
        assert answers == {"owner": 200, "stranger": 200, "admin": 200, "viewer": 404}, path
    Queue.objects.filter(pk=theirs.queue_id).update(cluster="other")
    assert as_(people.stranger).get(PAGE).status_code == 404
    assert as_(people.owner).get("/clusters/other").status_code == 404
    assert as_(people.admin).get(f"{PAGE}/nodes/nowhere").status_code == 404


def test_only_platform_administrators_get_the_check(as_, people, gpus):
    assert 'id="check"' not in as_(people.owner).get(f"{PAGE}?check=1").text
    check = {"HX-Request": "true", "HX-Target": "section#check"}
    assert as_(people.owner).get(PAGE, headers=check).status_code == 403
    page = as_(people.admin).get(PAGE).text
    assert 'id="check"' in page and 'id="nodes"' in page


def test_a_token_that_only_reads_is_enough_for_who_may_submit(client, people, gpus):
    _, text = Token.issue(people.owner, "test", scope="read")
    answer = client.get("/api/v1/clusters/local/nodes", headers={"Authorization": f"Bearer {text}"})
    assert answer.status_code == 200 and len(answer.json()["results"]) == 3
    _, text = Token.issue(people.admin, "test", team=Team.objects.get(name="vision"))
    elsewhere = client.get("/api/v1/clusters/local/nodes", headers={"Authorization": f"Bearer {text}"})
    assert elsewhere.status_code == 404, "that team has no queue there"
    _, text = Token.issue(people.viewer, "test", scope="manage")
    assert client.get("/api/v1/clusters/local/nodes", headers={"Authorization": f"Bearer {text}"}).status_code == 404


def test_names_are_shown_to_administrators_alone_where_the_setting_says_so(as_, people, lab, settings):
    settings.MUSTER_NODE_NAMES = "admins"
    clusters.get("local").listed = [node("gpu-1"), node("gpu-2", silence="gpu-2 does not answer"), node("gpu-10")]
    node_rows.write("local")
    on_nodes(lab.running(nodes=1, nproc_per_node=8), "gpu-1")
    owner = as_(people.owner)
    for path in (
        PAGE,
        f"{PAGE}?q=gpu-1",
        f"{PAGE}/nodes/~2",
        "/api/v1/clusters/local/nodes",
        "/api/v1/clusters/local/nodes/~2",
    ):
        told = owner.get(path)
        assert told.status_code == 200 and "gpu-" not in told.text.replace("?q=gpu-1", "").replace(
            'value="gpu-1"', ""
        ), path
    page = owner.get(PAGE).text
    assert 'href="/clusters/local/nodes/~2"' in page and ">node 2<" in page
    assert (
        owner.get(f"{PAGE}/nodes/gpu-2").status_code
        == owner.get("/api/v1/clusters/local/nodes/gpu-2").status_code
        == 404
    )
    admin = as_(people.admin)
    assert ">gpu-2<" in admin.get(PAGE).text and "gpu-2 does not answer" in admin.get(f"{PAGE}/nodes/gpu-2").text


def test_a_node_with_markup_for_a_name_is_harmless_everywhere(as_, people, lab, client):
    odd = node(HOSTILE, 2, silence=HOSTILE, product=HOSTILE, taints=(HOSTILE,), troubles=(HOSTILE,))
    clusters.get("local").listed = [odd]
    node_rows.write("local")
    clusters.get("local").listed = [replace(odd, silence="", troubles=())]
    node_rows.write("local")
    job = on_nodes(lab.running(nodes=1, nproc_per_node=1), HOSTILE)
    number = ClusterNode.objects.get(name=HOSTILE).number
    paths = (PAGE, f"{PAGE}?q=%3Cimg", f"{PAGE}/nodes/~{number}", f"/jobs/{job.pk}?view=list", f"/jobs/{job.pk}")
    for who in (people.owner, people.admin):
        for path in paths:
            page = as_(who).get(path).text
            assert "<img src=x" not in page and "onerror=alert(1)>" not in page, path
    told = as_(people.owner).get("/api/v1/clusters/local/nodes").json()["results"]
    mine = next(one for one in told if one["number"] == number)
    assert (
        mine["name"] == HOSTILE
        and as_(people.owner).get(f"/api/v1/clusters/local/nodes/{mine['key']}").status_code == 200
    )


def test_a_node_has_its_jobs_and_changes_in_time(owner, lab, theirs):
    first = on_nodes(lab.running(name="before", nodes=1, nproc_per_node=2), "gpu-2")
    lab.finish(first, 0)
    job = on_nodes(lab.running(name="now", nodes=1, nproc_per_node=2), "gpu-2")
    clusters.get("local").listed = [node("gpu-1"), node("gpu-2", is_cordoned=True), node("gpu-10")]
    node_rows.write("local")
    page = owner.get(f"{PAGE}/nodes/gpu-2").text
    assert f'href="/jobs/{job.pk}"><b>now</b>' in page and f'href="/jobs/{first.pk}">before</a>' in page
    assert "Cordoned" in page and "Appeared" in page and "secret-plan" not in page
    assert "8 GPUs: 2 held by now, 4 held by another team&#x27;s job, 2 not usable" in page
    part = owner.get(f"{PAGE}/nodes/gpu-2", headers={"HX-Request": "true", "HX-Target": "section#node"}).text
    assert "<html" not in part and 'id="node"' in part
    clusters.get("local").listed = [node("gpu-1")]
    node_rows.write("local")
    assert "It is not in the cluster since" in owner.get(f"{PAGE}/nodes/gpu-2").text
    assert ">gpu-2<" not in owner.get(PAGE).text


def test_a_page_says_why_it_has_no_nodes_or_old_ones(as_, owner, people, gpus, settings):
    clusters.get("local").is_reachable = False
    node_rows.write("local")
    page, told = owner.get(PAGE).text, as_(people.admin).get(PAGE).text
    assert "shown as they were: the cluster does not say what nodes it has" in page and "24 free" in page
    assert "shown as they were: the cluster does not answer" in told
    ClusterLook.objects.update(problem="", asked_at=timezone.now() - timedelta(minutes=9))
    assert "nothing looks at them now" in owner.get(PAGE).text
    NodeHistory.objects.all().delete()
    ClusterNode.objects.all().delete()
    ClusterLook.objects.all().delete()
    assert "have not been yet" in owner.get(PAGE).text
    settings.CLUSTERS = {"local": {"BACKEND": "jobs.clusters.local.LocalCluster", "OPTIONS": {"ROOT": "/nowhere"}}}
    assert "processes of one machine: there are no nodes" in owner.get(PAGE).text
