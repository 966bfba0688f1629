"""Who may use which route with which method: one table, compared with the URL map by test_access.py.

A new route needs a line here: `Route(DOOR, GET=..., POST=...)`. The door gives the answer to clients without valid
credentials. A rule gives the answer to each role: 0 where the role is let in (a status below 400), else the status of
the refusal. GET includes HEAD, except for the agents' door. Every method that a line does not name is answered with
405.
"""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.urls import get_resolver
from django.urls.resolvers import URLPattern, URLResolver
from django.utils import timezone

from accounts import members
from accounts.models import Membership, Role, Team, Token, User
from common import client_wheel
from credentials import services as credentials
from credentials.models import TeamSecret
from jobs.ingest import apply
from jobs.models import ClusterCheck, ClusterNode, Job, Webhook
from queues import allowed, cohorts, excluded, requests
from queues.models import AddedCluster, AllowedObject, Cohort, ExcludedNode, Flavor, Queue, QuotaRequest, TeamQuota
from queues.services import set_ceiling
from tests.conftest import People, make_user
from tests.support import packs, seed
from tests.support.builders import Lab, batch, identity, log_item
from volumes import services as volumes
from volumes.models import Volume
from workspaces import sent, services
from workspaces.models import Workspace

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
SECRET = "zebra-crossing-7731"  # is part of everything that only our team may see
PERSONS = ("viewer", "member", "admin", "stranger", "root")

READING, SUBMITTING, MANAGING = SCOPES = ("read", "submit", "manage")  # of tokens; each includes those before it


@dataclass(frozen=True)
class Rule:
    refused: dict[str, int]  # role: 0 when let in, else the status of the refusal
    scope: str = READING  # the narrowest scope that is sufficient

    def answer(self, person: str, scope: str = MANAGING) -> int:
        is_too_narrow = SCOPES.index(scope) < SCOPES.index(self.scope)
        return self.refused[person] or (403 if is_too_narrow else 0)


def let_in(names: str, scope: str = READING, **refused: int) -> Rule:
    rule = {**dict.fromkeys(names.split(), 0), **refused}
    assert set(rule) == set(PERSONS), rule
    return Rule(rule, scope)


ANY = let_in("viewer member admin stranger root")  # any signed-in user, for their own things
OWN = let_in("viewer member admin stranger root", MANAGING)
HIS = let_in("member", MANAGING, viewer=404, admin=404, stranger=404, root=404)  # one user's own; no administrator's
READ = let_in("viewer member admin root", stranger=404)
CONTROL = let_in("member admin root", SUBMITTING, viewer=403, stranger=404)
SUBMIT = let_in("member admin root", SUBMITTING, viewer=403, stranger=422)  # 422: as for an unknown queue
UPLOAD = let_in("member admin stranger", SUBMITTING, viewer=403, root=422)  # to one's own team; root must name the team
MANAGE = let_in("admin root", MANAGING, viewer=403, member=403, stranger=404)
AUDIT = let_in("admin stranger root", MANAGING, viewer=403, member=403)  # administrators, each for their own teams
NODES = let_in(
    "", MANAGING, viewer=403, member=403, admin=403, stranger=403, root=422
)  # 422: this cluster has none; or a wrong password
UNBOUND = let_in("", MANAGING, viewer=403, member=403, admin=403, stranger=403, root=409)  # 409: no team has one there
SUBMITTERS = let_in("member admin stranger root", viewer=404)  # the stranger too has a queue on this cluster
PODS = let_in("", MANAGING, viewer=403, member=403, admin=403, stranger=403, root=422)  # 422: this cluster has none
PLATFORM = let_in("root", MANAGING, viewer=403, member=403, admin=403, stranger=403)
CEILING = let_in("root", MANAGING, viewer=403, member=403, admin=403, stranger=404)

# The answer to a client without valid credentials, whatever the method: pages redirect to the login, the rest get 401.
PAGE, API, STREAM, AGENT, OPEN = "page", "api", "stream", "agent", "open"
NOBODY = {PAGE: 302, API: 401, STREAM: 401, AGENT: 401}


@dataclass(frozen=True)
class Route:
    door: str
    rules: dict[str, Rule]
    body: Any = None
    kind: str = "application/json"
    at: str = ""  # the URL, where it does not follow from the pattern
    is_resolved: bool = True


def route(
    door: str,
    *,
    body: Any = None,
    kind: str = "application/json",
    at: str = "",
    is_resolved: bool = True,
    **rules: Rule,
) -> Route:
    if "GET" in rules and door != AGENT:
        rules["HEAD"] = rules["GET"]
    return Route(door, rules, body, kind, at, is_resolved)


FORM = "application/x-www-form-urlencoded"
SUBMITTED = {"queue": "default", "command": ["torchrun", "train.py"], "nodes": 1, "nproc_per_node": 1}
SIGN_IN = {"username": "owner", "password": "owner-has-a-password"}

TABLE: dict[str, Route] = {
    # no account needed
    "healthz": route(OPEN, GET=ANY),
    "readyz": route(OPEN, GET=ANY),
    "client/": route(OPEN, GET=ANY),
    "client/{name}": route(OPEN, GET=ANY, at=f"client/{client_wheel.wheel().name}"),
    "login": route(OPEN, GET=ANY, POST=ANY, body="username=x&password=y", kind=FORM),
    "login/code": route(OPEN, GET=ANY, POST=ANY, kind=FORM, body="code=123456"),
    "logout": route(OPEN, POST=ANY),
    "": route(PAGE, GET=ANY),
    "static/muster.css": route(OPEN, GET=ANY, is_resolved=False),
    "api/v1/login": route(OPEN, POST=ANY, body=SIGN_IN),
    # pages, by session
    "live": route(STREAM, GET=ANY),
    "account": route(PAGE, GET=ANY),
    "account/password": route(PAGE, GET=ANY, POST=ANY, kind=FORM),
    "account/second-factor": route(PAGE, GET=ANY, POST=ANY, kind=FORM, body="act=begin"),
    "account/sessions": route(PAGE, GET=ANY, POST=ANY, kind=FORM, body="end=others&password=x"),
    "account/tokens": route(PAGE, GET=ANY, POST=ANY, kind=FORM, body="name=x&scope=read&expires_in_days=7"),
    "account/tokens/{pk}/revoke": route(PAGE, POST=HIS, at="account/tokens/{token}/revoke"),
    "audit": route(PAGE, GET=PLATFORM),
    "clusters": route(PAGE, GET=PLATFORM),
    "clusters/{name}/settings": route(PAGE, GET=PLATFORM, POST=NODES, kind=FORM, body="password=wrong", at="clusters/added/settings"),
    "clusters/{name}/namespaces": route(PAGE, POST=NODES, kind=FORM, body="team=nobody", at="clusters/added/namespaces", GET=PLATFORM),
    "new-cluster": route(PAGE, GET=PLATFORM, POST=NODES, kind=FORM, body="password=wrong"),
    "clusters/{name}": route(PAGE, GET=SUBMITTERS, at="clusters/local"),
    "clusters/{name}/nodes/{node}": route(PAGE, GET=SUBMITTERS, at="clusters/local/nodes/gpu-7"),
    "clusters/{name}/pods": route(PAGE, GET=PLATFORM, POST=PODS, kind=FORM, body="image=x", at="clusters/local/pods"),
    "nodes": route(PAGE, GET=PLATFORM, POST=NODES, kind=FORM, body="act=exclude&cluster=local&name=node-7&reason=Xid"),
    "people": route(PAGE, GET=PLATFORM, POST=PLATFORM, kind=FORM, body="act=activate&username=teammate&password=wrong"),
    "make-queue": route(PAGE, GET=PLATFORM, POST=PLATFORM, kind=FORM,
                        body="name=more&team=nlp&cluster=local&resource=cpu&slots=2&gpus_per_node=0&is_open=on"),
    "teams": route(PAGE, GET=ANY, POST=PLATFORM, kind=FORM, body="name=more"),
    "teams/{team}": route(PAGE, GET=READ),
    "teams/{team}/audit": route(PAGE, GET=MANAGE),
    "teams/{team}/members": route(PAGE, POST=MANAGE, kind=FORM, body="username=teammate&role=viewer"),
    "teams/{team}/members/remove": route(PAGE, POST=MANAGE, kind=FORM, body="username=teammate"),
    "teams/{team}/service-accounts": route(PAGE, POST=MANAGE, kind=FORM, body="name=ci&role=viewer"),
    "teams/{team}/service-accounts/remove": route(PAGE, POST=MANAGE, kind=FORM, body="username=bot@nlp"),
    "teams/{team}/webhooks": route(PAGE, GET=READ, POST=MANAGE, kind=FORM, body="name=more&url=https://93.184.216.34/&format=json&events=end"),
    "teams/{team}/quota": route(PAGE, GET=READ, POST=CEILING, kind=FORM, body="flavor=slots&nominal=64&cohort=&weight=1"),
    "teams/{team}/volumes": route(PAGE, GET=READ, POST=MANAGE, kind=FORM, body="name=more&cluster=local&size=1Gi&access_mode=ReadWriteMany"),
    "teams/{team}/volumes/{name}": route(PAGE, GET=READ, POST=MANAGE, kind=FORM, body="act=change&size=9Gi", at="teams/{team}/volumes/{volume}"),
    "queues/{name}/template": route(PAGE, GET=READ, POST=MANAGE, kind=FORM, body="yaml=defaults: {max_retries: 2}&shown="),
    "teams/{team}/secrets": route(PAGE, GET=READ, POST=MANAGE, kind=FORM, body="name=more&kind=env&values=A=b"),
    "teams/{team}/secrets/{name}": route(PAGE, GET=READ, POST=MANAGE, kind=FORM, body="act=change&values=A=c", at="teams/{team}/secrets/{hook}"),
    "teams/{team}/webhooks/{name}": route(PAGE, GET=READ, POST=MANAGE, kind=FORM, body="act=test", at="teams/{team}/webhooks/{hook}"),
    "queues/{name}": route(PAGE, GET=READ, POST=MANAGE, kind=FORM, body="slots=7&gpus_per_node=0&is_open=on"),
    "api/docs": route(PAGE, GET=ANY),
    "queues": route(PAGE, GET=ANY),
    "quota-requests": route(PAGE, GET=ANY, POST=let_in("admin root", viewer=403, member=403, stranger=404), kind=FORM,
                            body="act=grant&request={asked}&slots=10"),
    "usage": route(PAGE, GET=ANY),
    "usage.csv": route(PAGE, GET=ANY),
    "jobs": route(PAGE, GET=ANY),
    "jobs/new": route(PAGE, GET=ANY, POST=let_in("member admin root", viewer=422, stranger=422), kind=FORM,
                      body="queue={queue}&code=none&command=true&nodes=1&nproc_per_node=1&idempotency_key=k"),
    "jobs/bulk": route(PAGE, POST=ANY, kind=FORM, body="act=cancel&job={pk}"),  # each job is refused separately
    "jobs/{pk}": route(PAGE, GET=READ),
    "jobs/{pk}/cluster-events": route(PAGE, GET=READ),
    "jobs/{pk}/code": route(PAGE, GET=READ),
    "jobs/{pk}/logs": route(PAGE, GET=READ),
    "jobs/{pk}/logs/find": route(PAGE, GET=READ, at="jobs/{pk}/logs/find?text=z"),
    "jobs/{pk}/logs.txt": route(PAGE, GET=READ),
    "jobs/{pk}/cancel": route(PAGE, POST=CONTROL),
    "jobs/{pk}/suspend": route(PAGE, POST=CONTROL),
    "jobs/{pk}/resume": route(PAGE, POST=CONTROL),
    "jobs/{pk}/resubmit": route(PAGE, POST=CONTROL),
    "jobs/{pk}/priority": route(PAGE, GET=CONTROL, POST=CONTROL, kind=FORM, body="priority=3"),
    "jobs/{pk}/delete-log": route(PAGE, POST=CONTROL, at="jobs/{ended}/delete-log"),
    # the REST API, by token or session
    "api/v1/me": route(API, GET=ANY),
    "api/v1/schema": route(API, GET=ANY, at="api/v1/schema?format=json"),  # YAML takes ten times as long
    "api/v1/job-fields": route(API, GET=ANY),
    "api/v1/tokens": route(API, GET=ANY, POST=OWN, body={"name": "x"}),
    "api/v1/tokens/{pk}": route(API, DELETE=HIS, at="api/v1/tokens/{token}"),
    "api/v1/teams": route(API, GET=ANY, POST=PLATFORM, body={"name": "more"}),
    "api/v1/teams/{team}": route(API, GET=READ),
    "api/v1/teams/{team}/ceilings": route(API, GET=READ),
    "api/v1/teams/{team}/ceilings/{resource}": route(API, PUT=CEILING, body={"slots": 9}, at="api/v1/teams/{team}/ceilings/cpu"),
    "api/v1/usage": route(API, GET=ANY),
    "api/v1/quota-requests": route(API, GET=ANY, POST=CONTROL, body={"team": "nlp", "flavor": "slots", "slots": 64, "why": "x"}),
    "api/v1/quota-requests/{pk}": route(API, POST=MANAGE, DELETE=MANAGE, body={"verdict": "grant"}, at="api/v1/quota-requests/{asked}"),
    "api/v1/teams/{team}/quotas": route(API, GET=READ),
    "api/v1/teams/{team}/quotas/{flavor}": route(API, PUT=CEILING, DELETE=CEILING, body={"nominal": 9}, at="api/v1/teams/{team}/quotas/slots"),
    "api/v1/flavors": route(API, GET=ANY),
    "api/v1/flavors/{name}": route(API, PUT=PLATFORM, DELETE=PLATFORM, body={"cluster": "local"}, at="api/v1/flavors/unused"),
    "api/v1/cohorts": route(API, GET=ANY),
    "api/v1/cohorts/{name}": route(API, PUT=PLATFORM, DELETE=PLATFORM, body={"above": "all"}, at="api/v1/cohorts/part"),
    "api/v1/teams/{team}/members": route(API, GET=READ),
    "api/v1/teams/{team}/members/{username}": route(API, PUT=MANAGE, DELETE=MANAGE, body={"role": "viewer"}),
    "api/v1/teams/{team}/service-accounts": route(API, GET=READ, POST=MANAGE, body={"name": "ci", "role": "viewer"}),
    "api/v1/teams/{team}/service-accounts/{username}": route(API, DELETE=MANAGE, at="api/v1/teams/{team}/service-accounts/bot@nlp"),
    "api/v1/teams/{team}/volumes": route(API, GET=READ, POST=MANAGE, body={"name": "more", "cluster": "local", "size": "1Gi"}),
    "api/v1/teams/{team}/volumes/{name}": route(API, GET=READ, PATCH=MANAGE, DELETE=MANAGE, body={"size": "9Gi"}, at="api/v1/teams/{team}/volumes/{volume}"),
    "api/v1/queues/{name}/versions": route(API, GET=READ),
    "api/v1/teams/{team}/allowed": route(API, GET=READ, POST=CEILING, body={"cluster": "local", "kind": "secret", "name": "more"}),
    "api/v1/teams/{team}/allowed/{pk}": route(API, DELETE=CEILING, at="api/v1/teams/{team}/allowed/{allowed}"),
    "api/v1/clusters": route(API, GET=PLATFORM, POST=NODES, body={"name": "more", "options": {}, "password": "wrong"}),
    "api/v1/clusters/{name}": route(API, GET=PLATFORM, PATCH=NODES, body={"version": 1, "password": "wrong"}, at="api/v1/clusters/added"),
    "api/v1/clusters/{name}/remove": route(API, POST=NODES, body={"password": "wrong"}, at="api/v1/clusters/added/remove"),
    "api/v1/clusters/{name}/namespaces": route(API, GET=PLATFORM, POST=NODES, body={"team": "nlp", "namespace": "n"},
                                                at="api/v1/clusters/added/namespaces"),
    "api/v1/clusters/{name}/namespaces/{team}": route(API, DELETE=UNBOUND, at="api/v1/clusters/added/namespaces/nlp"),
    "api/v1/clusters/{name}/check": route(API, GET=PLATFORM, at="api/v1/clusters/local/check"),
    "api/v1/clusters/{name}/nodes": route(API, GET=SUBMITTERS, at="api/v1/clusters/local/nodes"),
    "api/v1/clusters/{name}/nodes/{node}": route(API, GET=SUBMITTERS, at="api/v1/clusters/local/nodes/gpu-7"),
    "api/v1/clusters/{name}/pod-checks": route(API, POST=PODS, body={"image": "x"}, at="api/v1/clusters/local/pod-checks"),
    "api/v1/clusters/{name}/pod-checks/{pk}": route(API, GET=PLATFORM, at="api/v1/clusters/local/pod-checks/{check}"),
    "api/v1/excluded-nodes": route(API, GET=PLATFORM, POST=NODES, body={"cluster": "local", "name": "node-7", "reason": "Xid 79"}),
    "api/v1/excluded-nodes/{pk}": route(API, DELETE=PLATFORM, at="api/v1/excluded-nodes/{node}"),
    "api/v1/suspected-nodes": route(API, GET=PLATFORM),
    "api/v1/teams/{team}/secrets": route(API, GET=READ, POST=MANAGE, body={"name": "more", "values": {"A": "b"}}),
    "api/v1/teams/{team}/secrets/{name}": route(API, GET=READ, PATCH=MANAGE, DELETE=MANAGE, body={"values": {"A": "c"}}, at="api/v1/teams/{team}/secrets/{hook}"),
    "api/v1/teams/{team}/webhooks": route(API, GET=READ, POST=MANAGE, body={"name": "more", "url": "https://93.184.216.34/", "events": ["end"]}),
    "api/v1/teams/{team}/webhooks/{name}": route(API, GET=READ, PATCH=MANAGE, DELETE=MANAGE, body={"all_jobs": False}, at="api/v1/teams/{team}/webhooks/{hook}"),
    "api/v1/teams/{team}/webhooks/{name}/rotate": route(API, POST=MANAGE, at="api/v1/teams/{team}/webhooks/{hook}/rotate"),
    "api/v1/teams/{team}/webhooks/{name}/test": route(API, POST=MANAGE, at="api/v1/teams/{team}/webhooks/{hook}/test"),
    "api/v1/teams/{team}/webhooks/{name}/deliveries": route(API, GET=READ, at="api/v1/teams/{team}/webhooks/{hook}/deliveries"),
    "api/v1/teams/{team}/webhooks/{name}/deliveries/{pk}/again": route(API, POST=MANAGE, at="api/v1/teams/{team}/webhooks/{hook}/deliveries/{delivery}/again"),
    "api/v1/audit": route(API, GET=AUDIT),
    "api/v1/queues": route(API, GET=ANY, POST=PLATFORM, body={"name": "more", "team": "nlp", "cluster": "local", "slots": 2}),
    "api/v1/queues/{name}": route(API, GET=READ, PATCH=MANAGE, body={"slots": 7}),
    "api/v1/workspaces": route(API, GET=ANY, POST=UPLOAD, body={"set": []}),
    "api/v1/workspaces/missing": route(API, POST=UPLOAD, body={"digests": []}),
    "api/v1/workspaces/files": route(API, POST=UPLOAD, body=packs.pack(b"x"), kind="application/x-muster-pack"),
    "api/v1/workspaces/{pk}": route(API, GET=READ, at="api/v1/workspaces/{code}"),
    "api/v1/workspaces/{pk}/files": route(API, GET=READ, at="api/v1/workspaces/{code}/files"),
    "api/v1/workspaces/{pk}/files/{path}": route(API, GET=READ, at="api/v1/workspaces/{code}/files/{path}"),
    "api/v1/workspaces/{pk}/diff/{other}": route(API, GET=READ, at="api/v1/workspaces/{code}/diff/{code}"),
    "api/v1/plans": route(API, POST=SUBMIT, body=SUBMITTED),
    "api/v1/jobs/bulk": route(API, POST=ANY, body={"act": "cancel", "ids": ["{pk}"]}),  # each id is refused separately
    "api/v1/jobs": route(API, GET=ANY, POST=SUBMIT, body=SUBMITTED),
    "api/v1/jobs/{pk}": route(API, GET=READ),
    "api/v1/jobs/{pk}/events": route(API, GET=READ),
    "api/v1/jobs/{pk}/cluster-events": route(API, GET=READ),
    "api/v1/jobs/{pk}/attempts": route(API, GET=READ),
    "api/v1/jobs/{pk}/logs": route(API, GET=READ),
    "api/v1/jobs/{pk}/logs/search": route(API, GET=READ, at="api/v1/jobs/{pk}/logs/search?text=z"),
    "api/v1/jobs/{pk}/logs/stream": route(API, GET=READ),
    "api/v1/jobs/{pk}/logs/text": route(API, GET=READ),
    "api/v1/jobs/{pk}/metrics": route(API, GET=READ),
    "api/v1/jobs/{pk}/ranks": route(API, GET=READ),
    "api/v1/jobs/{pk}/replicas": route(API, GET=READ),
    "api/v1/jobs/{pk}/checkpoints": route(API, GET=READ),
    "api/v1/jobs/{pk}/cancel": route(API, POST=CONTROL),
    "api/v1/jobs/{pk}/suspend": route(API, POST=CONTROL),
    "api/v1/jobs/{pk}/resume": route(API, POST=CONTROL),
    "api/v1/jobs/{pk}/resubmit": route(API, POST=CONTROL),
    "api/v1/jobs/{pk}/priority": route(API, GET=READ, POST=CONTROL, body={"priority": 3}),
    "api/v1/jobs/{pk}/delete-log": route(API, POST=CONTROL, at="api/v1/jobs/{ended}/delete-log"),
    # agents, by the token of one replica of one attempt; batches bypass Django (db/ingest/test_agent_door.py)
    "agent/v1/workspace": route(AGENT, GET=ANY, POST=ANY, body=b"", kind="application/octet-stream"),
}  # fmt: skip
ROUTES = {pattern: one.rules for pattern, one in TABLE.items()}


def patterns() -> list[str]:
    """Every route of the URL map, with its parameters as {name}."""
    return [_plain(text) for text in _walk(get_resolver().url_patterns)]


def _walk(found: list[URLPattern | URLResolver], prefix: str = "") -> Iterator[str]:
    for one in found:
        text = prefix + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from _walk(one.url_patterns, text)
        else:
            yield text


def _plain(text: str) -> str:
    text = re.sub(r"\(\?P<(\w+)>(?:\[[^\]]*\]|\\.|[^()\[\]])*\)", r"{\1}", text)
    text = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", text)
    return re.sub(r"\\([./-])", r"\1", text.replace("^", "")).removesuffix("$").removesuffix("\\Z")


@dataclass
class AccessFixture:
    """A team with data to read and to change, and a user for every role."""

    lab: Lab
    people: People
    job: Job = field(init=False)
    ended: Job = field(init=False)
    theirs: Job = field(init=False)  # of another team, with its own agent

    def __post_init__(self) -> None:
        team = self.lab.queue.team
        self.persons = {
            "viewer": self.people.viewer,
            "member": self.people.owner,
            "admin": make_user("chief"),
            "stranger": self.people.stranger,
            "root": self.people.admin,
        }
        Membership.objects.create(user=self.persons["admin"], team=team, role=Role.ADMIN)
        members.make_service_account(team=team, name="bot", role=Role.MEMBER, by=self.people.admin)
        credentials.create(team=team, by=self.people.admin, name=SECRET, kind="env", values={"A": "b"})
        self.allowed = allowed.allow(team=team, by=self.people.admin, cluster="local", kind="secret", name="train")
        self.node = excluded.exclude(cluster="local", name="node-1", reason="Xid 79", by=self.people.admin)
        cohorts.make_flavor(by=None, name="slots", cluster="local", resource="cpu")
        cohorts.make_flavor(by=None, name="unused", cluster="local")
        for name in ("all", "part"):
            cohorts.set_cohort(by=None, name=name)
        cohorts.set_quota(by=None, team=team, flavor="slots", nominal=8)
        set_ceiling(
            team=team, resource="cpu", slots=64, by=None
        )  # or nobody but the platform could grant what is asked for
        self.asked = requests.ask(by=self.people.teammate, queue=self.lab.queue, slots=9, why=SECRET)
        AddedCluster.objects.create(
            name="added", options={"NAMESPACE": "n", "IMAGE": "i", "CONTROL_URL": "https://m.example"}
        )
        self.check = ClusterCheck.objects.create(cluster="local", image=SECRET, asked_by=self.people.admin)
        volumes.create(team=team, by=self.people.admin, name="zebra", cluster="local", size="1Gi")
        now = timezone.now()
        ClusterNode.objects.create(cluster="local", name="gpu-7", number=1, first_seen_at=now, changed_at=now)
        self.delivery = seed.webhook(team, name=SECRET).deliveries.first()
        self.kept = Token.issue(self.people.owner, SECRET)[0]
        self.gone = make_user("gone")
        Membership.objects.create(user=self.gone, team=team, role=Role.ADMIN)
        self.job = self.with_code(self.lab.running(name=SECRET), b"ours " + SECRET.encode(), self.people.owner)
        line = log_item(2, 0, [(timezone.now().timestamp(), SECRET)])
        apply.apply_batch(identity=identity(self.job, 1), batch=batch(1, line))
        self.ended = self.lab.finish(self.lab.running(nodes=1), 0)
        other = Queue.objects.create(name="theirs", team=Team.objects.get(name="vision"), cluster="local", nominal=8)
        lab = Lab(other, self.people.stranger)
        self.theirs = self.with_code(lab.running(name="theirs"), b"theirs", self.people.stranger)

    def with_code(self, job: Job, content: bytes, by: User) -> Job:
        services.receive(team=job.team, by=by, stream=io.BytesIO(packs.pack(content)))
        entries = sent.entries([packs.file(f"{content.decode().split()[-1]}.py", content)])
        code, _ = services.create(team=job.team, by=by, put=entries)
        Job.objects.filter(pk=job.pk).update(workspace=code)
        job.refresh_from_db()
        return job

    def token(self, user: User, scope: str = MANAGING, **changes: Any) -> str:
        token, text = Token.issue(user, "test", scope=scope)
        Token.objects.filter(pk=token.pk).update(**changes)
        return text

    def state(self) -> list[Any]:
        """The rows that a refused request must not have changed."""
        jobs = Job.objects.order_by("pk").values_list("pk", "phase", "cancel_requested_at", "suspended", "attempt")
        people = Membership.objects.order_by("pk").values_list("user", "team", "role")
        users = User.objects.order_by("pk").values_list("pk", "password", "is_active", "is_superuser")
        queues = Queue.objects.order_by("pk").values_list("pk", "nominal", "is_open")
        tokens = Token.objects.order_by("pk").values_list("pk", "revoked_at", "scope")
        hooks = Webhook.objects.order_by("pk").values_list("pk", "all_jobs", "sealed_secret", "deliveries__next_try_at")
        shared = Volume.objects.order_by("pk").values_list("pk", "size", "removal_asked_at")
        added = AddedCluster.objects.order_by("pk").values_list("name", "version")
        nodes = ExcludedNode.objects.order_by("pk").values_list("pk", "readmitted_at")
        lists = AllowedObject.objects.order_by("pk").values_list("pk", "name")
        secrets = TeamSecret.objects.order_by("pk").values_list("pk", "version")
        return [
            *TeamQuota.objects.order_by("pk").values_list("pk", "version"),
            *QuotaRequest.objects.order_by("pk").values_list("pk", "state"),
            *Flavor.objects.order_by("pk").values_list("pk", "name"),
            *Cohort.objects.order_by("pk").values_list("pk", "parent"),
            *jobs,
            *people,
            *users,
            *queues,
            *tokens,
            *hooks,
            *secrets,
            *lists,
            *nodes,
            *added,
            *shared,
            Workspace.objects.count(),
            Team.objects.count(),
        ]


def address(pattern: str, world: AccessFixture) -> str:
    text = TABLE[pattern].at or pattern
    return "/" + text.format(
        pk=world.job.pk,
        ended=world.ended.pk,
        token=world.kept.pk,
        hook=SECRET,
        delivery=world.delivery.pk,
        allowed=world.allowed.pk,
        node=world.node.pk,
        check=world.check.pk,
        volume="zebra",
        asked=world.asked.pk,
        team="nlp",
        name="default",
        username="teammate",
        code=world.job.workspace_id,
        path=f"{SECRET}.py",
    )


def body(pattern: str, world: AccessFixture) -> bytes:
    sent = TABLE[pattern].body
    if isinstance(sent, bytes):
        return sent
    if isinstance(sent, str):
        return sent.replace("{queue}", str(world.lab.queue.pk)).replace("{asked}", str(world.asked.pk)).encode()
    return json.dumps({} if sent is None else sent).replace('"{pk}"', str(world.job.pk)).encode()
