"""Teams that share a machine are one trust domain: warnings for a second queue, notes on open ports, refusals."""

import pytest
from django.core.management import call_command

from accounts.models import Team, Token
from jobs.models import Job
from jobs.scheduling.scheduler import schedule
from queues.models import Queue
from tests.db.api.test_api import Api

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
    """The queue of the tests is on a local cluster; a second cluster isolates teams."""
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


def test_a_second_team_on_one_machine_is_allowed_with_a_warning(local, as_):
    answer = new_queue(as_, cluster=local.cluster)
    assert answer.status_code == 201
    assert "another team also has a queue on this machine" in answer.json()["notice"]
    assert "another team" in as_("admin").get("/queues/default").json()["notice"]  # the first team's queue shows it too


def test_a_cluster_that_isolates_teams_needs_no_warning(local, as_):
    assert new_queue(as_, cluster="pods").json()["notice"] == ""
    assert as_("admin").get("/queues/default").json()["notice"] == ""


def test_a_machine_whose_teams_trust_each_other_needs_no_warning(shared, as_, settings):
    settings.MUSTER_TEAMS_TRUST = True
    assert as_("admin").get("/queues/default").json()["notice"] == ""


def test_the_management_command_warns_too(local, capsys):
    call_command("queue", "theirs", team="newcomers", slots=2, cluster=local.cluster)
    assert "another team also has a queue on this machine" in capsys.readouterr().err


def test_an_elastic_job_is_refused_where_another_team_could_send_it_code(shared, api, settings):
    answer = api.post("/jobs", ELASTIC)
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert problem["field"] == "min_nodes" and "MUSTER_TEAMS_TRUST=1" in problem["message"]
    assert not Job.objects.exists()
    assert api.post("/jobs", STATIC).status_code == 201
    settings.MUSTER_TEAMS_TRUST = True
    assert api.post("/jobs", ELASTIC).status_code == 201


def test_an_elastic_job_is_not_resumed_after_another_team_joined_the_machine(local, as_, api, settings):
    job = api.post("/jobs", ELASTIC).json()["id"]
    assert api.post(f"/jobs/{job}/suspend").status_code == 200
    new_queue(as_, cluster=local.cluster)
    answer = api.post(f"/jobs/{job}/resume")
    assert answer.status_code == 409 and "MUSTER_TEAMS_TRUST=1" in answer.json()["detail"]
    assert Job.objects.get(pk=job).suspended
    settings.MUSTER_TEAMS_TRUST = True
    assert api.post(f"/jobs/{job}/resume").status_code == 200


BY_C10D = [
    ({"command": ["torchrun", "--standalone", "train.py"]}, "command", "--standalone"),
    ({"command": ["python", "-m", "torch.distributed.run", "--standalone", "train.py"]}, "command", "--standalone"),
    ({"command": ["sh", "-c", "cd src && torchrun --nnodes=1:2 train.py"]}, "command", "--nnodes=1:2"),
    ({"command": ["sh", "-c", "torchrun --nproc-per-node 2 --nnodes  \\\n\t1:2 train.py"]}, "command", "--nnodes=1:2"),
    (
        {"command": ["sh", "-c", "exec bash -c 'python3 -m torch.distributed.run --stand train.py'"]},
        "command",
        "--stand",
    ),
    ({"command": ["env", "A=1", "torchrun", "--nnodes", "1:2", "train.py"]}, "command", "--nnodes=1:2"),
    ({"command": ["bash", "-c", "torchrun --rdzv-backend 'c10d' t.py"]}, "command", "--rdzv-backend=c10d"),
    ({"command": ["env", "PET_STANDALONE=1", "torchrun", "t.py"]}, "command", "PET_STANDALONE=1"),
    ({"command": ["sh", "-c", "PET_NNODES=1:2 torchrun t.py"]}, "command", "PET_NNODES=1:2"),
    ({"command": ["sh", "-c", "export PET_RDZV_BACKEND=c10d; torchrun t.py"]}, "command", "PET_RDZV_BACKEND=c10d"),
    ({"command": ["sh", "-c", "cd src&&torchrun --standalone train.py"]}, "command", "--standalone"),
    ({"command": ["sh", "-c", "(cd src;torchrun --nnodes=1:2 train.py)"]}, "command", "--nnodes=1:2"),
    ({"command": ["sh", "-c", "echo $(torchrun --nnodes=${MIN}:${MAX} t.py)"]}, "command", "--nnodes=${MIN}:${MAX}"),
    ({"command": ["torchrun", "-m", "--standalone", "pkg.train"]}, "command", "--standalone"),
    (
        {"command": ["python", "-X", "utf8", "-mtorch.distributed.run", "--standalone", "x.py"]},
        "command",
        "--standalone",
    ),
    ({"command": ["sh", "-c", "python -mtorch.distributed.run --standalone x.py"]}, "command", "--standalone"),
    ({"env": {"PET_STANDALONE": "1"}}, "env.PET_STANDALONE", "1"),
]


@pytest.mark.parametrize(("changes", "field", "value"), BY_C10D)
def test_any_other_use_of_c10d_is_refused_there_too(shared, api, settings, changes, field, value):
    answer = api.post("/jobs", {**STATIC, **changes})
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert (problem["field"], problem["value"]) == (field, value)
    assert "MUSTER_TEAMS_TRUST=1" in problem["message"]
    settings.MUSTER_TEAMS_TRUST = True
    assert api.post("/jobs", {**STATIC, **changes}).status_code == 201


@pytest.mark.parametrize(
    "words",
    [
        "torchrun --rdzv-backend static t.py",
        "python x.py --standalone",
        "torchrun train.py --nnodes 2",
        "torchrun train.py --standalone",
        "torchrun train.py --nnodes=2:4 --data my-standard-set",
        "torchrun --nnodes 1:1 t.py --rdzv-buckets=8",
        "PET_STANDALONE=0 torchrun 'unclosed",
    ],
)
def test_a_command_that_only_resembles_c10d_is_accepted(shared, api, words):
    assert api.post("/jobs", {**STATIC, "command": ["sh", "-c", words]}).status_code == 201
    if words.startswith("torchrun t"):
        assert api.post("/jobs", {**STATIC, "command": words.split()}).status_code == 201


def test_a_queued_elastic_job_does_not_start_after_another_team_joined(local, lab, as_):
    job = lab.submit(min_nodes=1)
    new_queue(as_, cluster=local.cluster)
    schedule()
    job = lab.visit(job, times=6)
    assert job.phase == "failed" and job.attempt == 1
    assert "another team now has a queue on its machine" in job.message and "MUSTER_TEAMS_TRUST=1" in job.message
    assert not lab.cluster.creations


def test_a_running_elastic_job_is_not_retried_after_another_team_joined(local, lab, as_):
    job = lab.running(min_nodes=2, max_retries=3)
    assert job.phase == "running"
    new_queue(as_, cluster=local.cluster)
    assert lab.visit(job, times=3).phase == "running"  # a running attempt goes on
    lab.finish(job, 1, 1)
    lab.clock.advance(3600)
    job = lab.visit(job, times=8)
    assert job.phase == "failed" and job.attempt == 2
    assert "another team now has a queue on its machine" in job.message


def test_an_elastic_job_of_the_only_team_is_accepted(local, api):
    assert api.post("/jobs", ELASTIC).status_code == 201


def test_the_plan_notes_which_ports_are_open_on_one_machine(local, api, settings):
    assert "one port on every address" in api.post("/plans", STATIC).json()["notes"][0]
    assert "run code in this job" in api.post("/plans", ELASTIC).json()["notes"][0]
    assert api.post("/plans", {**STATIC, "command": ["sh", "-c", "true"]}).json()["notes"] == []
    settings.CLUSTERS = {local.cluster: {"BACKEND": "jobs.clusters.memory.MemoryCluster"}}
    assert api.post("/plans", STATIC).json()["notes"] == []
