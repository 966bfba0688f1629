"""The command line against the real server: every operation in the API schema is reached by one of its verbs.

This fails for a new operation until the client has a method and a verb for it. Routes of agents are not in the
schema.
"""

import json
import logging
from datetime import timedelta

import httpx
import pytest
from click.testing import CliRunner
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator
from muster.cli import cli
from muster.client import AsyncClient, Client

from accounts.models import Membership, Role, Token
from jobs.ingest import apply
from jobs.models import ClusterNode, Job
from queues import excluded
from queues.models import AddedCluster
from tests.conftest import make_user
from tests.contract import shape
from tests.contract.test_release_before import BEFORE
from tests.support.builders import batch, identity, item, log_item

# operation: the client's method and the verb that do it
CLIENT = {
    "POST /login": ("login", "login"),
    "GET /me": ("me", "me"),
    "GET /schema": ("schema", "schema"),
    "GET /jobs": ("jobs", "jobs"),
    "POST /jobs": ("submit", "submit"),
    "POST /jobs/bulk": ("act_on_many", "cancel"),
    "GET /jobs/{id}": ("job", "status"),
    "GET /jobs/{id}/attempts": ("attempts", "attempts"),
    "POST /jobs/{id}/cancel": ("cancel", "cancel"),
    "POST /jobs/{id}/suspend": ("suspend", "suspend"),
    "POST /jobs/{id}/resume": ("resume", "resume"),
    "GET /jobs/{id}/priority": ("priority_effect", "priority"),
    "POST /jobs/{id}/priority": ("set_priority", "priority"),
    "POST /jobs/{id}/resubmit": ("resubmit", "resubmit"),
    "POST /jobs/{id}/delete-log": ("delete_log", "delete-log"),
    "GET /jobs/{id}/ranks": ("ranks", "ranks"),
    "GET /jobs/{id}/replicas": ("replicas", "replicas"),
    "GET /jobs/{id}/events": ("events", "events"),
    "GET /jobs/{id}/cluster-events": ("cluster_events", "events"),
    "GET /jobs/{id}/checkpoints": ("checkpoints", "checkpoints"),
    "GET /jobs/{id}/logs": ("logs", "logs"),
    "GET /jobs/{id}/logs/search": ("search_logs", "logs"),
    "GET /jobs/{id}/logs/stream": ("follow", "logs"),
    "GET /jobs/{id}/logs/text": ("log_text", "logs"),
    "GET /jobs/{id}/metrics": ("metrics", "metrics"),
    "POST /plans": ("plan", "plan"),
    "GET /job-fields": ("job_fields", "fields"),
    "GET /queues": ("queues", "queues"),
    "POST /queues": ("create_queue", "queues create"),
    "GET /queues/{name}": ("queue", "queues show"),
    "PATCH /queues/{name}": ("set_queue", "queues set"),
    "GET /queues/{name}/versions": ("queue_versions", "queues versions"),
    "GET /teams/{team}/volumes": ("volumes", "volumes list"),
    "POST /teams/{team}/volumes": ("create_volume", "volumes create"),
    "GET /teams/{team}/volumes/{name}": ("volume", "volumes show"),
    "PATCH /teams/{team}/volumes/{name}": ("set_volume", "volumes set"),
    "DELETE /teams/{team}/volumes/{name}": ("delete_volume", "volumes delete"),
    "GET /clusters": ("clusters", "clusters list"),
    "POST /clusters": ("add_cluster", "clusters add"),
    "GET /clusters/{name}": ("cluster", "clusters set"),
    "PATCH /clusters/{name}": ("set_cluster", "clusters set"),
    "POST /clusters/{name}/remove": ("remove_cluster", "clusters remove"),
    "GET /clusters/{name}/namespaces": ("team_namespaces", "clusters namespaces"),
    "POST /clusters/{name}/namespaces": ("bind_namespace", "clusters bind"),
    "DELETE /clusters/{name}/namespaces/{team}": ("release_namespace", "clusters release"),
    "GET /clusters/{name}/check": ("check_cluster", "clusters check"),
    "GET /clusters/{name}/nodes": ("cluster_nodes", "clusters nodes"),
    "GET /clusters/{name}/nodes/{node}": ("cluster_node", "nodes show"),
    "POST /clusters/{name}/pod-checks": ("check_pods", "clusters check"),
    "GET /clusters/{name}/pod-checks/{id}": ("pod_check", "clusters check"),
    "GET /excluded-nodes": ("excluded_nodes", "nodes list"),
    "POST /excluded-nodes": ("exclude_node", "nodes exclude"),
    "DELETE /excluded-nodes/{id}": ("readmit_node", "nodes readmit"),
    "GET /suspected-nodes": ("suspected_nodes", "nodes suspected"),
    "GET /teams/{team}/allowed": ("allowed_objects", "teams allowed"),
    "POST /teams/{team}/allowed": ("allow_object", "teams allow"),
    "DELETE /teams/{team}/allowed/{id}": ("forbid_object", "teams forbid"),
    "GET /teams": ("teams", "teams"),
    "POST /teams": ("create_team", "teams create"),
    "GET /teams/{team}": ("team", "teams show"),
    "GET /teams/{team}/ceilings": ("ceilings", "queues ceiling"),
    "PUT /teams/{team}/ceilings/{resource}": ("set_ceiling", "queues ceiling"),
    "GET /flavors": ("flavors", "quota flavors"),
    "PUT /flavors/{name}": ("make_flavor", "quota make-flavor"),
    "DELETE /flavors/{name}": ("remove_flavor", "quota remove-flavor"),
    "GET /cohorts": ("cohorts", "quota cohorts"),
    "PUT /cohorts/{name}": ("set_cohort", "quota set-cohort"),
    "DELETE /cohorts/{name}": ("remove_cohort", "quota remove-cohort"),
    "GET /teams/{team}/quotas": ("quotas", "quota list"),
    "PUT /teams/{team}/quotas/{flavor}": ("set_quota", "quota set"),
    "DELETE /teams/{team}/quotas/{flavor}": ("remove_quota", "quota remove"),
    "GET /quota-requests": ("quota_requests", "requests list"),
    "POST /quota-requests": ("ask_for_quota", "requests ask"),
    "POST /quota-requests/{id}": ("decide_quota", "requests grant"),
    "DELETE /quota-requests/{id}": ("withdraw_quota", "requests withdraw"),
    "GET /usage": ("usage", "usage"),
    "GET /teams/{team}/members": ("members", "teams members list"),
    "PUT /teams/{team}/members/{username}": ("set_member", "teams members set"),
    "DELETE /teams/{team}/members/{username}": ("remove_member", "teams members remove"),
    "GET /teams/{team}/service-accounts": ("service_accounts", "teams accounts list"),
    "POST /teams/{team}/service-accounts": ("create_service_account", "teams accounts add"),
    "DELETE /teams/{team}/service-accounts/{username}": ("remove_service_account", "teams accounts remove"),
    "GET /teams/{team}/secrets": ("team_secrets", "secrets list"),
    "POST /teams/{team}/secrets": ("create_team_secret", "secrets create"),
    "GET /teams/{team}/secrets/{name}": ("team_secret", "secrets show"),
    "PATCH /teams/{team}/secrets/{name}": ("set_team_secret", "secrets set"),
    "DELETE /teams/{team}/secrets/{name}": ("delete_team_secret", "secrets delete"),
    "GET /teams/{team}/webhooks": ("webhooks", "webhooks list"),
    "POST /teams/{team}/webhooks": ("create_webhook", "webhooks create"),
    "GET /teams/{team}/webhooks/{name}": ("webhook", "webhooks show"),
    "PATCH /teams/{team}/webhooks/{name}": ("set_webhook", "webhooks set"),
    "DELETE /teams/{team}/webhooks/{name}": ("delete_webhook", "webhooks delete"),
    "POST /teams/{team}/webhooks/{name}/rotate": ("rotate_webhook", "webhooks rotate"),
    "POST /teams/{team}/webhooks/{name}/test": ("test_webhook", "webhooks test"),
    "GET /teams/{team}/webhooks/{name}/deliveries": ("deliveries", "webhooks deliveries"),
    "POST /teams/{team}/webhooks/{name}/deliveries/{id}/again": ("send_again", "webhooks again"),
    "GET /tokens": ("tokens", "tokens"),
    "POST /tokens": ("create_token", "tokens create"),
    "DELETE /tokens/{id}": ("revoke_token", "tokens revoke"),
    "GET /audit": ("audit", "audit"),
    "GET /workspaces": ("workspaces", "workspaces"),
    "POST /workspaces": ("upload", "submit"),
    "POST /workspaces/missing": ("upload", "submit"),
    "POST /workspaces/files": ("upload", "submit"),
    "GET /workspaces/{id}": ("workspace", "workspaces"),
    "GET /workspaces/{id}/files": ("files", "files"),
    "GET /workspaces/{id}/files/{path}": ("file", "cat"),
    "GET /workspaces/{id}/diff/{other}": ("workspace_diff", "diff"),
}
# The command line cancels, suspends and resumes through the bulk operation; these single ones are for programs.
ONLY_FOR_PROGRAMS = {"POST /jobs/{id}/cancel", "POST /jobs/{id}/suspend", "POST /jobs/{id}/resume"}
ON_PODS = {
    "GET /clusters/{name}/pod-checks/{id}"
}  # tests/cluster/node/test_probe.py: no cluster of this world has pods


def described() -> set[str]:
    """Every operation in the API schema, and the schema itself."""
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    found = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    return {one.replace(" /api/v1/", " /") for one in found} | {"GET /schema"}


def test_every_operation_has_a_call_and_a_verb():
    assert described() == set(CLIENT)
    for method, verb in CLIENT.values():
        assert callable(getattr(Client, method)) and callable(getattr(AsyncClient, method)), method
        command = cli
        for word in verb.split():
            command = command.commands[word]


class Script(logging.Handler):
    """Runs `muster ...` as a program would, and collects the requests that the HTTP library logs."""

    def __init__(self, url, text, folder):
        super().__init__()
        self.url = url
        self.env = {"MUSTER_URL": url, "MUSTER_TOKEN": text, "MUSTER_CONFIG": str(folder / "config.json")}
        self.seen = set()
        self.sent = []

    def emit(self, record):
        method, url = record.args[:2]
        self.seen.add((method, url.path))

    def run(self, line, *words, exit_code=0, **options):
        result = CliRunner().invoke(cli, [*line.split(), *words], env={**self.env, **options.pop("env", {})}, **options)
        assert result.exit_code == exit_code, (line, result.output, result.stderr)
        return result.stdout

    def ids(self, line):
        return self.run(f"{line} -q").split()

    def read(self, line):
        return json.loads(self.run(f"{line} -o json"))

    def operations(self):
        """The operations whose path matches a request that was sent."""
        whole = {one: one.replace(" /", " /api/v1/", 1) for one in CLIENT}
        return {one for one, operation in whole.items() if any(shape.is_of(operation, *seen) for seen in self.seen)}


@pytest.fixture
def script(site, people, tmp_path, monkeypatch):
    for name in ("MUSTER_URL", "MUSTER_TOKEN", "MUSTER_SERVER", "MUSTER_QUEUE"):
        monkeypatch.delenv(name, raising=False)
    found = Script(site.url, Token.issue(people.admin, "script", scope="manage")[1], tmp_path)
    logger = logging.getLogger("httpx")
    monkeypatch.setattr(logger, "level", logging.INFO)
    logger.addHandler(found)
    send = httpx.Client.send
    monkeypatch.setattr(
        httpx.Client, "send", lambda *words, **named: found.sent.append(words[1]) or send(*words, **named)
    )
    yield found
    logger.removeHandler(found)


@pytest.fixture
def job(lab):
    """A job that ran, printed, reported a metric and failed."""
    job = lab.running(max_retries=0)
    said = log_item(0, 0, [(1_763_700_000, "hello"), (1_763_700_001, "a needle")])
    metrics = item("metrics", rank=0, points=[[1_763_700_001.0, 1, {"loss": 0.5}]])
    ended = item("rank", rank=1, local_rank=1, state="failed", exit_code=3, at=1_763_700_002.0)
    saved = {"name": "step-3000", "step": 3000, "bytes": 5, "written_at": 1_763_700_001}
    listed = item("checkpoints", at=1_763_700_002.0, checkpoints=[saved])
    apply.apply_batch(identity=identity(job), batch=batch(1, said, metrics, ended, listed))
    return lab.finish(job, 3, 3)


def test_every_operation_is_reached_by_a_verb(script, job, lab, people, tmp_path):
    reads_of_a_job(script, job)
    acts_on_jobs(script, job, lab, tmp_path)
    people_and_tokens(script)
    webhooks(script, job)
    team_secrets(script, tmp_path)
    templates(script, tmp_path)
    volumes(script)
    nodes(script)
    quotas(script)
    queues_and_the_rest(script)
    login_and_logout(script)

    assert set(CLIENT) - script.operations() == ONLY_FOR_PROGRAMS | ON_PODS
    # So that it also works with a server of the release before, unless what is new was asked for.
    unknown = [words for request in script.sent for words in shape.unknown_to(BEFORE, request)]
    assert len(script.sent) > 60 and sorted(set(unknown)) == [
        *(f"PATCH /api/v1/queues/{{name}}: {new}" for new in ("defaults", "template", "version")),
        *(f"POST /api/v1/jobs: {new}" for new in ("notify", "team_secrets")),
    ]


def test_status_names_a_silent_agent(script, lab):
    """The states of its ranks stay as the agent last reported them."""
    job = lab.running(name="quiet")
    assert "silent" not in script.run(f"status {job.pk}")
    long_ago = timezone.now() - timedelta(minutes=2)
    job.replicas.filter(index=1).update(last_batch_at=long_ago, started_at=long_ago)
    said = [line for line in script.run(f"status {job.pk}").splitlines() if "silent" in line]
    assert len(said) == 1 and "worker-1: last heard from 2m" in said[0], said


def quotas(script):
    script.run("quota make-flavor slots --cluster local --resource cpu")
    assert script.read("quota flavors")[0]["name"] == "slots"
    script.run("quota set-cohort all")
    assert "Cohort part in all" in script.run("quota set-cohort part --in all")
    assert script.ids("quota cohorts") == ["all", "part"]
    assert "all" in script.run("quota set nlp slots --nominal 64 --cohort all --lend 8")
    assert script.read("quota list nlp")[0]["lending_limit"] == 8
    asked = script.run("requests ask --team nlp --flavor slots --slots 96 --why evaluation -q").strip()
    assert script.read(f"requests grant {asked} --slots 72")["granted"] == 72
    asked = script.run("requests ask --queue default --slots 9 --why evaluation -q").strip()
    assert f"Request {asked} is declined" in script.run(f"requests decline {asked} --answer later")
    asked = script.run("requests ask --queue default --slots 9 --why evaluation -q").strip()
    script.run(f"requests withdraw {asked}")
    assert script.ids("requests list --state withdrawn") == [asked]
    script.run("quota remove nlp slots")
    assert [one["team"] for one in script.read("usage --by job --team nlp")] == ["nlp"]
    for line in ("quota remove-cohort part", "quota remove-cohort all", "quota remove-flavor slots"):
        script.run(line)
    assert script.read("quota flavors") == []


def reads_of_a_job(script, job):
    assert str(job.pk) in script.ids("jobs --all --phase finished --team nlp --user owner")
    assert script.read(f"status {job.pk}")["first_failure"]["exit_code"] == 3
    assert "first failure: rank 1 exited with code 3" in script.run(f"status {job.pk}")
    assert script.read(f"attempts {job.pk}")[0]["first_failing_rank"] == 1
    assert "rank 1" in script.run(f"attempts {job.name}")
    assert script.ids(f"ranks {job.pk} --attempt 1") == ["0", "1", "2", "3"]
    assert len(script.ids(f"replicas {job.pk}")) == 2
    assert {"kind", "phase"} <= set(script.read(f"events {job.pk}")[0])
    assert script.read(f"events {job.pk} --cluster") == [], "a local cluster has none, and says so"
    script.run(f"events {job.pk} --attempt 1", exit_code=2)
    assert script.run(f"logs {job.pk}") == "[rank 0] hello\n[rank 0] a needle\n"
    assert script.run(f"logs {job.pk} --find NEEDLE --rank 0") == "a needle\n"
    assert script.run(f"logs -f {job.pk} --no-prefix") == "hello\na needle\n"
    assert script.run(f"logs {job.pk} --text").count("\n") == 2
    assert script.run(f"metrics {job.pk} --csv").splitlines()[1].endswith(",1,0.5")
    assert script.read(f"checkpoints {job.pk}")[0]["step"] == 3000
    script.run(f"wait {job.pk}", exit_code=3)


def acts_on_jobs(script, job, lab, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print('hello')\n")
    asked = "--queue default --nodes 1 --nproc 2 --env A=1 --secret HF --name script --idempotency-key once"
    line = f"submit -q {asked} --dir {tmp_path / 'code'} torchrun train.py"
    number = script.run(line, env={"HF": "hush"}).strip()
    assert script.run(line, env={"HF": "hush"}).strip() == number  # the idempotency key makes it one job
    assert (script.read(f"status {number}")["secrets"], "hush" in script.run(f"status {number} -o json")) == (
        ["HF"],
        False,
    )
    plan = script.run("plan --queue default --nodes 1 --nproc 4 torchrun train.py")
    assert plan.splitlines()[0].startswith("1 node x 4 processes, 4 cpu of default")
    assert script.run("submit --dry-run --queue nowhere true", exit_code=1) == ""
    (tmp_path / "code" / "train.py").write_text("print('hello, world')\n")
    other = script.run(
        line.replace("once", "again").replace("--name script", "--name other"), env={"HF": "hush"}
    ).strip()
    assert script.ids(f"files {number}") == ["train.py"]
    assert script.run(f"cat {other} train.py") == "print('hello, world')\n"
    assert "+print('hello, world')" in script.run(f"diff {number} {other}", exit_code=1)
    assert script.ids(f"workspaces {script.ids('workspaces')[0]}") == script.ids("workspaces -n 1")
    copy = script.run(f"resubmit -q {number}").strip()
    jobs = [Job.objects.get(pk=pk) for pk in (number, copy)]
    assert script.read(f"priority {number} -3 --dry-run")["effects"]
    assert f"job {number} (script) has priority -3" in script.run(f"priority {number} -3")
    assert [one["status"] for one in script.read(f"suspend {number} {copy}")] == [200, 200]
    assert [lab.visit(one).phase for one in jobs] == ["suspended"] * 2
    assert script.run(f"resume {number}").startswith(f"job {number}: resume requested")
    assert script.run(f"cancel {number} {copy}").count("cancel requested") == 2
    assert [lab.visit(one).phase for one in jobs] == ["cancelled"] * 2
    script.run(f"cancel {job.pk} 999999", exit_code=1)
    script.run(f"wait {copy}", exit_code=120)
    assert script.run(f"delete-log --yes {job.pk}") == f"job {job.pk}: log deleted\n"


def people_and_tokens(script):
    make_user("eve")
    script.run("teams create speech")
    assert {"nlp", "speech"} <= set(script.ids("teams"))
    assert script.read("teams show speech")["name"] == "speech"
    script.run("teams members add speech eve --role member")
    script.run("teams members set speech eve --role viewer")
    assert {"username": "eve", "role": "viewer"}.items() <= script.read("teams members list speech")[-1].items()
    script.run("teams members remove speech eve")
    account = script.run("teams accounts add nlp nightly --role member -q").strip()
    assert account in script.ids("teams accounts list nlp")
    text = script.run(f"tokens create for-ci --scope read --days 7 --service-account {account} -q").strip()
    assert script.ids("me") != script.run("me -q", env={"MUSTER_TOKEN": text}).split() == [account]
    assert "for-ci" in script.run("tokens")
    script.run("tokens revoke for-ci")
    script.run("me", env={"MUSTER_TOKEN": text}, exit_code=77)
    script.run(f"teams accounts remove nlp {account}")
    assert "token" in script.run("audit --actor root")
    assert script.read("audit --team nlp -n 1")[0]["team"] == "nlp"


def webhooks(script, job):
    url = "https://93.184.216.34/path-secret"
    made = script.run("webhooks create nlp chat --format slack --on end --on failure --url-stdin -q", input=f"{url}\n")
    assert made.startswith("whsec_")
    script.run("webhooks create nlp chat --on end --url-stdin", input="https://10.0.0.1/\n", exit_code=1)
    assert script.ids("webhooks list nlp") == ["chat"]
    changed = script.read("webhooks set nlp chat --named-only --on start")
    assert (changed["all_jobs"], changed["events"]) == (False, ["start"])
    assert "events   start of jobs that name it" in script.run("webhooks show nlp chat")
    assert script.run("webhooks rotate nlp chat -q").startswith("whsec_")
    number = script.run("webhooks test nlp chat -q").strip()
    assert script.ids("webhooks deliveries nlp chat") == [number]
    assert "ping" in script.run("webhooks deliveries nlp chat")
    assert "is sent again" in script.run(f"webhooks again nlp chat {number}")
    assert "path-secret" not in script.run("webhooks list nlp -o json")
    asked = "submit -q --queue default --nodes 1 --nproc 1 --no-workspace --notify chat -- true"
    assert script.read(f"status {script.run(asked).strip()}")["notify"] == ["chat"]
    script.run("webhooks delete nlp chat")
    script.run("webhooks show nlp chat", exit_code=1)


def team_secrets(script, tmp_path):
    made = script.run("secrets create nlp hub HF_TOKEN --value-stdin -q", input="zebra\n")
    assert made.strip() == "hub" and script.ids("secrets list nlp") == ["hub"]
    (tmp_path / "more.env").write_text("A=1\nB='two words'\n")
    changed = script.read(f"secrets set nlp hub --env-file {tmp_path / 'more.env'} --remove HF_TOKEN")
    assert (changed["keys"], changed["version"]) == (["A", "B"], 2)
    assert "values   A B" in script.run("secrets show nlp hub")
    script.run("secrets set nlp hub", exit_code=2)
    script.run("secrets set nlp hub --remove NOPE", exit_code=1)
    (tmp_path / "key.json").write_text("{}")
    assert "key.json" in script.run(f"secrets create nlp gcp --kind file --from-file {tmp_path / 'key.json'}")
    asked = "submit -q --queue default --nodes 1 --nproc 1 --no-workspace --team-secret hub -- true"
    job = script.run(asked).strip()
    assert script.read(f"status {job}")["team_secrets"] == ["hub"]
    script.run("secrets delete nlp hub", exit_code=1)  # the job uses it
    script.run("secrets delete nlp gcp")
    assert script.ids("secrets list nlp") == ["hub"]


def templates(script, tmp_path):
    printed = script.run("queues template default")
    assert printed.startswith("version: 1")
    (tmp_path / "queue.yaml").write_text(f"{printed}\ndefaults: {{max_retries: 1}}\n".replace("defaults: {}\n", ""))
    assert script.read(f"queues set default --from-file {tmp_path / 'queue.yaml'}")["version"] == 2
    script.run(f"queues set default --from-file {tmp_path / 'queue.yaml'}", exit_code=1)  # of version 1, which is old
    assert script.ids("queues versions default") == ["2", "1"]
    script.run("queues set default --default max_retries=")
    number = script.run("teams allow nlp secret train --cluster local -q").strip()
    assert script.ids("teams allowed nlp") == [number]
    script.run("teams allow nlp secret muster-x --cluster local", exit_code=1)
    script.run(f"teams forbid nlp {number}")
    assert script.ids("teams allowed nlp") == []


def nodes(script):
    assert script.ids("clusters list") == ["local"]
    assert "processes of one machine" in script.run("clusters check local")
    script.run("clusters check nowhere", exit_code=1)
    script.run(
        "clusters add far --in-cluster --namespace A! --image x --password-stdin",
        input="root-has-a-password\n",
        exit_code=1,
    )
    options = {"NAMESPACE": "jobs", "IMAGE": "training:1", "CONTROL_URL": "https://muster.example"}
    AddedCluster.objects.create(name="far", options=options)
    # What was asked of the cluster itself is in tests/cluster/api/test_added.py: the same options need no question.
    script.run("clusters set far --image training:1 --password-stdin", input="root-has-a-password\n")
    assert script.ids("clusters list") == ["far", "local"]
    assert script.ids("clusters namespaces far") == []
    script.run("clusters bind far nlp jobs", exit_code=1)  # the cluster's own
    script.run("clusters release far nlp", exit_code=1)
    script.run("clusters remove far --password-stdin", input="wrong\n", exit_code=1)
    script.run("clusters remove far --password-stdin", input="root-has-a-password\n")
    assert script.ids("clusters nodes local") == []
    now = timezone.now()
    for number, name in enumerate(("gpu-1", "gpu-2"), 1):
        ClusterNode.objects.create(
            cluster="local", name=name, number=number, gpus=8, product="H100", first_seen_at=now, changed_at=now
        )
    assert script.ids("clusters nodes local") == ["gpu-1", "gpu-2"]
    assert "8 free at most" in script.run("nodes show gpu-2 --cluster local")
    script.run("nodes show gpu-9 --cluster local", exit_code=1)
    script.run("clusters nodes nowhere", exit_code=1)
    script.run("clusters check local --pods", exit_code=1)
    for asked in ("--image x", "--pods --image x --queue default"):
        script.run(f"clusters check local {asked}", exit_code=2)
    script.run("nodes exclude local gpu-3 --reason Xid", exit_code=1)  # processes of one machine have no nodes
    excluded.exclude(cluster="local", name="gpu-3", reason="Xid 79", by=None)
    assert script.ids("nodes list") == ["gpu-3"]
    assert script.run("nodes list").count("Xid 79") == 1
    assert script.ids("nodes suspected") == []
    script.run("nodes readmit local gpu-3")
    script.run("nodes readmit local gpu-3", exit_code=1)
    assert script.ids("nodes list") == []


def volumes(script):
    assert script.run("volumes create nlp data --cluster local --size 1Gi -q").strip() == "data"
    script.run("volumes create nlp data --cluster local --size 1Gi", exit_code=1)
    assert script.ids("volumes list nlp") == ["data"]
    assert script.read("volumes set nlp data --size 2Gi")["size"] == "2Gi"
    script.run("volumes set nlp data", exit_code=2)
    assert "size      2Gi" in script.run("volumes show nlp data")
    assert "is being deleted" in script.run("volumes delete nlp data")


def queues_and_the_rest(script):
    assert script.ids("queues") == ["default"]
    script.run("queues create night --team nlp --slots 4 --cluster local --description slow")
    assert script.read("queues set night --slots 6 --close")["slots"] == 6
    shown = script.run("queues show night")
    assert "0 of 6" in shown and "closed" in shown and "slow" in shown
    assert script.read("queues ceiling nlp cpu 9 --reason more")[0]["slots"] == 9
    assert script.ids("queues ceiling nlp") == ["cpu"]
    assert script.read("schema")["openapi"].startswith("3.")
    assert {"nodes", "deadline_seconds"} <= set(script.ids("fields"))
    assert "1 to 4096" in script.run("fields")
    assert script.run("version").count("\n") == 2


def login_and_logout(script):
    away = {"MUSTER_URL": "", "MUSTER_TOKEN": ""}
    script.run(
        f"login {script.url} --user owner --password-stdin --scope read --days 1", input="owner-has-a-password\n"
    )
    assert script.run("me -q", env=away) == "owner\n"
    assert script.read("me")["token"]["scope"] == "manage"
    script.run("logout", env=away)
    script.run("me", env=away, exit_code=77)
    assert Token.objects.get(user__username="owner").revoked_at is not None


def test_an_administrator_of_one_team_needs_no_other_rights(script, team, queue):
    boss = make_user("boss")
    Membership.objects.create(user=boss, team=team, role=Role.ADMIN)
    script.env["MUSTER_TOKEN"] = Token.issue(boss, "script", scope="manage")[1]

    assert script.read("queues set default --slots 3")["slots"] == 3
    assert script.run("teams create more", exit_code=77) == ""
    assert [one["act"] for one in script.read("audit --team nlp")][:1] != []
