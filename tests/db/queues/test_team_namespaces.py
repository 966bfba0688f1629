"""A team's own namespace: what it must have before a team moves, and that jobs end where they were submitted."""

import pytest

from accounts.models import AuditEntry, Team
from common.errors import Conflict, InvalidInput, InvalidSpec, NotAllowed
from jobs import clusters
from jobs import services as jobs
from jobs.control import attempt_rows, orphans
from jobs.control.store import plan_of
from jobs.core.plan import Claim
from jobs.models import Attempt, Job
from jobs.scheduling.scheduler import schedule
from jobs.submission import inspecting, pods, storage, team_namespaces
from queues import namespaces, services
from queues.models import Queue, TeamNamespace
from tests.support.builders import Lab
from volumes import services as volumes
from volumes.models import State, Volume


@pytest.fixture
def cluster(on_pods, lab):
    found = clusters.get(on_pods.cluster)
    found.namespace = "jobs"
    return found


def bind(people, team, namespace="nlp-jobs"):
    return team_namespaces.bind(team=team, cluster="local", namespace=namespace, by=people.admin)


def refusals(people, team, namespace="nlp-jobs") -> list[str]:
    with pytest.raises(InvalidInput) as error:
        bind(people, team, namespace)
    assert not TeamNamespace.objects.filter(team=team, ended_at=None).exists()
    return [one.message for one in error.value.problems]


def start(lab: Lab, *jobs: Job) -> None:
    schedule()
    for job in jobs:
        lab.visit(job, times=3)


def preview(lab: Lab, env: dict[str, str]) -> tuple[str, ...]:
    sent = {"command": "torchrun train.py", "nodes": 1, "nproc_per_node": 1, "env": env}
    return jobs.preview(user=lab.user, queue=lab.queue, sent=sent).notes


def launched(lab: Lab, job: Job) -> str:
    """The namespace of the attempt that a job begins."""
    return Attempt.objects.filter(job=job).order_by("-number").values_list("namespace", flat=True).first() or ""


def test_a_job_is_made_in_the_namespace_that_held_when_it_was_submitted(cluster, lab, people, team):
    before = lab.submit()
    bind(people, team)
    after = lab.submit()
    start(lab, before, after)
    assert launched(lab, before) == cluster.namespace
    assert launched(lab, after) == "nlp-jobs"
    team_namespaces.release(team=team, cluster="local", by=people.admin)
    assert namespaces.of(team, "local", at=after.created_at) == "nlp-jobs"
    assert namespaces.of(team, "local") == ""
    assert [one.act for one in AuditEntry.objects.order_by("pk") if one.act.startswith("namespace")] == [
        "namespace.bind", "namespace.release",
    ]  # fmt: skip


def test_a_namespace_has_one_team_and_a_team_one_namespace(cluster, people, team):
    bind(people, team)
    other = Team.objects.get(name="vision")
    assert "belongs to team nlp" in refusals(people, other)[0]
    with pytest.raises(Conflict, match="team nlp's already"):
        bind(people, team)
    bind(people, team, "nlp-two")
    assert [one.namespace for one in namespaces.bound("local")] == ["nlp-two"]
    bind(people, other, "vision-jobs")
    with pytest.raises(Conflict, match="given to another team meanwhile"):
        namespaces.bind(team=team, cluster="local", namespace="vision-jobs", by=None)


def test_a_namespace_with_jobs_of_another_team_is_not_given_away(cluster, lab, people, team):
    bind(people, team)
    job = lab.submit()
    start(lab, job)
    team_namespaces.release(team=team, cluster="local", by=people.admin)
    other = Team.objects.get(name="vision")
    assert f"still has jobs of other teams: {job.pk}" in refusals(people, other)[0]


def test_a_namespace_that_was_another_team_s_is_not_given_away(cluster, lab, people, team):
    """What is left in it, and jobs that have not begun, would be the new team's."""
    bind(people, team)
    waits = lab.submit()
    team_namespaces.release(team=team, cluster="local", by=people.admin)
    other = Team.objects.get(name="vision")
    assert "was that of team nlp, whose claims, Secrets and policies may still be in it" in refusals(people, other)[0]
    bind(people, team)  # back to the same team
    team_namespaces.release(team=team, cluster="local", by=people.admin)
    TeamNamespace.objects.create(team=other, cluster="local", namespace="nlp-jobs")  # as by an earlier release
    start(lab, waits)
    assert launched(lab, waits) == cluster.namespace, "a job that has not begun does not begin among another team's"


def test_what_the_namespace_lacks_is_told_with_the_line_that_mends_it(cluster, lab, people, team):
    cluster.without_rights.add("nlp-jobs")
    cluster.job_claim = "shared"
    row = volumes.create(
        team=team,
        by=people.admin,
        name="data",
        cluster="local",
        size="1Gi",
    )
    Volume.objects.filter(pk=row.pk).update(state=State.BOUND)
    Queue.objects.filter(team=team).update(
        template={"pods": {"volumes": [{"name": "sets", "persistentVolumeClaim": {"claimName": "sets"}}]}}
    )
    found = refusals(people, team)
    assert found[0] == "cannot be used: the account may not create pods there; somebody types: kubectl apply"
    lacking = [one for one in found if one.startswith("lacks claim")]
    names = [row.claim_name, "sets", "shared"]
    assert sorted(one.split()[2].rstrip(",") for one in lacking) == sorted(names)
    assert all(f"deploy/move-claim.sh {cluster.namespace} " in one and one.endswith(" nlp-jobs") for one in lacking)
    cluster.without_rights.clear()
    for name in names:
        cluster.claims[name] = Claim(name)
        cluster.elsewhere.add(("nlp-jobs", name))
    bind(people, team)
    assert storage.claim_of(Volume.objects.select_related("team").get(pk=row.pk)).namespace == "nlp-jobs"


def test_the_clusters_own_namespace_and_odd_names_are_refused(cluster, people, team):
    assert "share" in refusals(people, team, cluster.namespace)[0]
    for name in ("A", "x" * 64, "-a", "", "a.b", "<b>"):
        assert "must be the name of a namespace" in refusals(people, team, name)[0]
    with pytest.raises(Conflict, match="no namespace of its own"):
        team_namespaces.release(team=team, cluster="local", by=people.admin)


def test_only_platform_administrators_give_them(cluster, people, team):
    for by in (people.owner, people.stranger):
        with pytest.raises(NotAllowed):
            team_namespaces.bind(team=team, cluster="local", namespace="x", by=by)
        with pytest.raises(NotAllowed):
            team_namespaces.release(team=team, cluster="local", by=by)


def test_strays_are_looked_for_there_and_checks_look_at_rights_there(cluster, people, team):
    bind(people, team)
    cluster.without_rights.add("nlp-jobs")
    assert [one.words for one in inspecting.inspect("local") if one.state == "wrong"] == [
        "the account may not create pods there"
    ]
    assert attempt_rows.namespaces("local") == set()
    assert orphans.sweep_all() == 0


def test_checkpoints_of_the_other_namespace_are_not_begun_from(cluster, lab, people, team):
    source = lab.submit()
    start(lab, source)
    bind(people, team)
    with pytest.raises(
        InvalidSpec, match="has its checkpoints in namespace jobs, and jobs of team nlp run in nlp-jobs"
    ):
        lab.submit(from_job=source.pk)


def test_the_page_and_the_api(cluster, as_, people, team):
    client = as_(people.admin)
    page = "/clusters/local/namespaces"
    assert "No team has a namespace of its own" in client.get(page).content.decode()
    cluster.without_rights.add("bad")
    answer = client.post(page, {"team": "nlp", "namespace": "bad"})
    assert answer.status_code == 422 and "cannot be used" in answer.content.decode()
    assert client.post(page, {"team": "nlp", "namespace": "nlp-jobs"}).status_code == 302
    assert "nlp-jobs" in client.get(page).content.decode()
    api = "/api/v1/clusters/local/namespaces"
    assert [one["namespace"] for one in client.get(api).json()["results"]] == ["nlp-jobs"]
    answer = client.post(api, {"team": "nobody", "namespace": "x"}, content_type="application/json")
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "team"
    assert client.delete(f"{api}/nlp").status_code == 204
    assert client.delete(f"{api}/nlp").status_code == 409
    assert client.get("/api/v1/clusters/nowhere/namespaces").status_code == 404


def test_muster_makes_the_namespace_where_it_may(cluster, as_, people, team):
    client, api = as_(people.admin), "/api/v1/clusters/local/namespaces"
    cluster.without_rights |= {"made", "paged"}
    asked = {"team": "nlp", "namespace": "made", "make": True}
    answer = client.post(api, asked, content_type="application/json")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["message"] == "cannot be made: the account may not make namespaces"
    cluster.may_make_namespaces = True
    refused = client.post(api, {**asked, "make": False}, content_type="application/json")
    assert refused.status_code == 422 and cluster.made == []
    assert client.post(api, asked, content_type="application/json").status_code == 201
    page = client.post("/clusters/local/namespaces", {"team": "nlp", "namespace": "paged", "make": "on"})
    assert page.status_code == 302 and cluster.made == ["made", "paged"]
    assert [one.namespace for one in namespaces.bound("local")] == ["paged"]
    with pytest.raises(NotAllowed):
        team_namespaces.bind(team=team, cluster="local", namespace="x", by=people.owner, make=True)
    assert cluster.made == ["made", "paged"]


def test_a_made_namespace_stays_while_the_team_cannot_move_there_yet(cluster, people, team):
    """Its claims can only be taken there once it exists."""
    cluster.may_make_namespaces, cluster.job_claim = True, "shared"
    with pytest.raises(InvalidInput, match="lacks claim shared"):
        team_namespaces.bind(team=team, cluster="local", namespace="made", by=people.admin, make=True)
    assert cluster.made == ["made"] and not namespaces.bound("local")


def test_a_queue_opens_networks_within_what_is_allowed_and_the_plan_says_what_is_closed(cluster, lab, people, team):
    boss, queue = people.admin, lab.queue
    with pytest.raises(InvalidInput, match=r"is not within .* 10\.0\.0\.0/8; a platform administrator sets"):
        pods.checked(queue, {"egress": ["0.0.0.0/0"]}, by=boss)
    called = {"WANDB_API_KEY": "x"}
    assert not [one for one in preview(lab, called) if "cannot reach" in one], "nothing is closed without a policy"
    bind(people, team)
    assert [one for one in preview(lab, called) if "WANDB_API_KEY (Weights & Biases)" in one]
    assert not [one for one in preview(lab, called | {"WANDB_MODE": "offline"}) if "cannot reach" in one]
    cluster.egress_allowed = ("internet", "10.0.0.0/8")
    services.change(queue=queue, by=boss, template=pods.checked(queue, {"egress": ["internet"]}, by=boss))
    lab.queue.refresh_from_db()
    assert not [one for one in preview(lab, called) if "cannot reach" in one]
    job = lab.submit()
    plan = plan_of(Job.objects.select_related("queue", "team", "user", "template").get(pk=job.pk), 1)
    assert plan.is_isolated and plan.egress == ("internet",)
