"""Teams that share a machine are one trust domain: who gives a queue there to a second one is told, and what is open is said."""

import pytest
from django.core.management import call_command

from accounts.models import Team, Token
from jobs.models import Job
from queues.models import Queue
from tests.integration.test_api import Api

pytestmark = pytest.mark.django_db

ELASTIC = {"queue": "default", "command": ["torchrun", "train.py"], "nodes": 2, "min_nodes": 1, "nproc_per_node": 1}
STATIC = {"queue": "default", "command": ["torchrun", "train.py"], "nodes": 1, "nproc_per_node": 1}


@pytest.fixture
def as_(client, people):
    return lambda who: Api(client, Token.issue(getattr(people, who), "test", scope="manage")[1])


@pytest.fixture
def api(as_) -> Api:
    return as_("owner")


@pytest.fixture
def local(queue, settings):
    """The queue of the tests is on a local cluster, and there is one that separates."""
    settings.CLUSTERS = {
        queue.cluster: {"BACKEND": "jobs.clusters.local.LocalCluster", "OPTIONS": {"ROOT": "/nonexistent"}},
        "pods": {"BACKEND": "jobs.clusters.memory.MemoryCluster"},
    }
    return queue


@pytest.fixture
def shared(local):
    team = Team.objects.create(name="newcomers")
    return Queue.objects.create(name="second", team=team, cluster=local.cluster, nominal=4)


def new_queue(as_, **changes):
    Team.objects.get_or_create(name="newcomers")
    sent = {"name": "theirs", "team": "newcomers", "cluster": "local", "slots": 4, **changes}
    return as_("admin").post("/queues", sent)


def test_whoever_gives_a_second_team_a_queue_on_one_machine_is_told_and_not_refused(local, as_):
    answer = new_queue(as_, cluster=local.cluster)
    assert answer.status_code == 201
    assert "another team has a queue on this machine" in answer.json()["notice"]
    assert "another team" in as_("admin").get("/queues/default").json()["notice"]  # both are concerned


def test_a_cluster_that_separates_teams_needs_no_warning(local, as_):
    assert new_queue(as_, cluster="pods").json()["notice"] == ""
    assert as_("admin").get("/queues/default").json()["notice"] == ""


def test_nor_does_a_machine_whose_teams_trust_each_other(shared, as_, settings):
    settings.MUSTER_TEAMS_TRUST = True
    assert as_("admin").get("/queues/default").json()["notice"] == ""


def test_the_command_on_the_server_says_it_too(local, capsys):
    call_command("queue", "theirs", team="newcomers", slots=2, cluster=local.cluster)
    assert "another team has a queue on this machine" in capsys.readouterr().err


def test_an_elastic_job_is_refused_where_another_team_could_send_it_code(shared, api, settings):
    answer = api.post("/jobs", ELASTIC)
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert problem["field"] == "min_nodes" and "MUSTER_TEAMS_TRUST=1" in problem["message"]
    assert not Job.objects.exists()
    assert api.post("/jobs", STATIC).status_code == 201
    settings.MUSTER_TEAMS_TRUST = True
    assert api.post("/jobs", ELASTIC).status_code == 201


def test_an_elastic_job_is_not_resumed_where_another_team_came_meanwhile(local, as_, api, settings):
    job = api.post("/jobs", ELASTIC).json()["id"]
    assert api.post(f"/jobs/{job}/suspend").status_code == 200
    new_queue(as_, cluster=local.cluster)
    answer = api.post(f"/jobs/{job}/resume")
    assert answer.status_code == 409 and "MUSTER_TEAMS_TRUST=1" in answer.json()["detail"]
    assert Job.objects.get(pk=job).suspended
    settings.MUSTER_TEAMS_TRUST = True
    assert api.post(f"/jobs/{job}/resume").status_code == 200


def test_an_elastic_job_of_the_only_team_is_taken(local, api):
    assert api.post("/jobs", ELASTIC).status_code == 201


def test_the_plan_says_which_ports_are_open_on_one_machine(local, api, settings):
    assert "one port on every address" in api.post("/plans", STATIC).json()["notes"][0]
    assert "run code in this job" in api.post("/plans", ELASTIC).json()["notes"][0]
    assert api.post("/plans", {**STATIC, "command": ["sh", "-c", "true"]}).json()["notes"] == []
    settings.CLUSTERS = {local.cluster: {"BACKEND": "jobs.clusters.memory.MemoryCluster"}}
    assert api.post("/plans", STATIC).json()["notes"] == []
