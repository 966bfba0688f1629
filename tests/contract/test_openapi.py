"""The API conforms to its OpenAPI description: every operation, with valid and invalid data.

Schemathesis generates the requests from the description and checks each response against it: no server error, only
described statuses, content types and schemas; invalid data is refused, valid data accepted.
"""

import io
import itertools
import json
from functools import partial

import pytest
import schemathesis
from django.core.management import call_command
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from accounts import members
from accounts.models import Membership, Role, Team, Token
from credentials import services as secrets
from jobs.ingest import apply
from jobs.models import ClusterCheck
from queues import allowed, cohorts, excluded
from queues import requests as quota_requests
from queues.models import Queue
from tests.conftest import make_user
from tests.support import packs, seed
from tests.support.builders import Lab, batch, identity, item, log_item
from tests.support.patience import PATIENCE_SECONDS
from tests.support.site import serve
from volumes import services as volumes
from workspaces import sent, services

DESCRIPTION = SchemaGenerator().get_schema(request=None, public=True)
SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION)
OPERATIONS = {f"{one.method.upper()} {one.path}": one for one in (found.ok() for found in SCHEMA.get_all_operations())}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
pytestmark = pytest.mark.django_db  # otherwise pytest-django creates no database
EXAMPLES = 10
FEW = 3


@schemathesis.serializer("application/x-muster-pack")
def packed(ctx, value):
    """Half of the bodies are a pack, half are not."""
    data = value if isinstance(value, bytes) else str(value).encode(errors="replace")
    return packs.pack(data) if len(data) % 2 else data


@pytest.fixture(scope="module")
def world(django_db_setup, django_db_blocker):
    """A real web process on the test database, with objects for every operation."""
    with django_db_blocker.unblock():
        try:
            with serve() as site:
                yield {"base_url": site.url, **_filled()}
        finally:
            call_command("flush", verbosity=0, interactive=False)


def _filled() -> dict:
    team = Team.objects.create(name="nlp")
    root = make_user("root", is_superuser=True)
    for name in ("ada", "bob"):
        Membership.objects.create(user=make_user(name), team=team, role=Role.MEMBER)
    bot = members.make_service_account(team=team, name="bot", role=Role.MEMBER, by=root).user
    queue = Queue.objects.create(name="default", team=team, cluster="local", nominal=8)
    lab = Lab(queue, root)
    job, ended = lab.running(name="seen"), lab.finish(lab.running(name="ended", nodes=1), 0)
    line = log_item(0, 0, [(1_763_700_000.0, "a line")])
    points = item("metrics", rank=0, points=[[1_763_700_000.0, 1, {"loss": 0.5}]])
    running = item("rank", rank=0, local_rank=0, pid=1, state="running", at=1_763_700_000.0)
    apply.apply_batch(identity=identity(job), batch=batch(1, running, line, points))
    services.receive(team=team, by=root, stream=io.BytesIO(packs.pack(b"print(1)")))
    code, _ = services.create(team=team, by=root, put=sent.entries([packs.file("train.py", b"print(1)")]))
    hook, gone = (seed.webhook(team, name=name) for name in ("chat", "gone"))
    for name in ("hub", "unused"):
        secrets.create(team=team, by=root, name=name, kind="env", values={"HF_TOKEN": "x"})
    own, text = Token.issue(root, "contract", scope="manage")
    other = Token.issue(bot, "other")[0]
    real = {"id": job.pk, "team": "nlp", "username": "ada", "queue": "default", "cluster": "local", "ids": [job.pk]}
    real["resource"] = "cpu"
    real |= {"hook": hook.name, "unused_hook": gone.name, "delivery": hook.deliveries.first().pk}
    for name in ("data", "unused"):
        volumes.create(team=team, by=root, name=name, cluster="local", size="1Gi")
    real |= {"volume": "data", "unused_volume": "unused"}
    real["allowed"] = allowed.allow(team=team, by=root, cluster="local", kind="secret", name="train").pk
    real |= {"secret": "hub", "unused_secret": "unused"}
    real["node"] = excluded.exclude(cluster="local", name="node-1", reason="Xid 79", by=root).pk
    real["check"] = ClusterCheck.objects.create(cluster="local", image="x:1", asked_by=root).pk
    seed.nodes(job, count=3)
    real |= {"machine": "gpu-1"}
    cohorts.make_flavor(by=root, name="slots", cluster="local", resource="cpu")
    cohorts.make_flavor(by=root, name="unused", cluster="local")
    cohorts.set_cohort(by=root, name="unused")
    cohorts.set_quota(by=root, team=team, flavor="slots", nominal=8)
    cohorts.make_flavor(by=root, name="rare", cluster="local", resource="gpu", gpus_per_node=4)
    asked, unused = (
        quota_requests.ask(by=root, team=team, flavor=flavor, slots=64, why="more") for flavor in ("slots", "rare")
    )
    real |= {"asked": asked.pk, "unused_asked": unused.pk}
    real |= {"kind": "slots", "unused_kind": "unused", "unused_cohort": "unused"}
    real |= {"ended": ended.pk, "token": other.pk, "bot": bot.username, "code": code.pk, "path": "train.py"}
    return {"headers": {"Authorization": f"Bearer {text}"}, "real": real, "token": other.pk, "own": own.pk}


def limited(test, *, examples=EXAMPLES):
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(test)


def ask(case, world, checks) -> int:
    """Send one request and validate the response; return its status. Long polling is left out."""
    if isinstance(case.query, dict):
        case.query.pop("wait", None)
    if "/tokens/" in case.path and case.path_parameters.get("id") == world["own"]:
        case.path_parameters["id"] = world["token"]  # or all later requests would be unauthenticated
    response = case.call(base_url=world["base_url"], headers=world["headers"], timeout=PATIENCE_SECONDS)
    case.validate_response(response, checks=checks)
    return response.status_code


STREAMS = {name for name in OPERATIONS if name.endswith("/logs/stream")}  # endless by design; has tests of its own
NAMES = sorted(set(OPERATIONS) - STREAMS)


@pytest.mark.parametrize("name", NAMES)
def test_valid_requests_are_answered_as_described(world, name):
    operation = OPERATIONS[name]

    hows = itertools.cycle(("there", "plain", "as made"))

    @limited
    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    def requests(case):
        how = next(hows)
        if how != "as made":
            make_real(case, world["real"], name=name)
        if how == "plain":
            make_plain(case, name=name)
        seen.append(ask(case, world, CHECKS))

    seen: list[int] = []
    requests()
    assert name in NEVER_TAKEN or any(status < 300 for status in seen), (name, sorted(set(seen)))


# A random name and password never match a user, and no cluster of this world has nodes or pods, or was added.
NEVER_TAKEN = {
    "POST /api/v1/login",
    "POST /api/v1/excluded-nodes",
    "POST /api/v1/clusters",
    "PATCH /api/v1/clusters/{name}",
    *(f"POST /api/v1/clusters/{{name}}/{what}" for what in ("pod-checks", "namespaces", "remove")),
    "DELETE /api/v1/clusters/{name}/namespaces/{team}",
}
# Objects that must exist, or match each other, for an operation to succeed.
AT = {
    "/workspaces/{id}": {"id": "code"},
    "/workspaces/{id}/files": {"id": "code"},
    "/workspaces/{id}/files/{path}": {"id": "code", "path": "path"},
    "/workspaces/{id}/diff/{other}": {"id": "code", "other": "code"},
    "/tokens/{id}": {"id": "token"},
    "/jobs/{id}/delete-log": {"id": "ended"},
    "/queues/{name}": {"name": "queue"},
    "/service-accounts/{username}": {"username": "bot"},
    **{f"/webhooks/{{name}}{rest}": {"name": "hook"} for rest in ("", "/rotate", "/test", "/deliveries")},
    "/webhooks/{name}/deliveries/{id}/again": {"name": "hook", "id": "delivery"},
    "DELETE /api/v1/teams/{team}/webhooks/{name}": {"name": "unused_hook"},
    "/secrets/{name}": {"name": "secret"},
    "/allowed/{id}": {"id": "allowed"},
    "/excluded-nodes/{id}": {"id": "node"},
    **{f"/clusters/{{name}}{rest}": {"name": "cluster"} for rest in ("", "/check", "/remove", "/namespaces")},
    "/clusters/{name}/pod-checks": {"name": "cluster"},
    "/clusters/{name}/namespaces/{team}": {"name": "cluster", "team": "team"},
    "/clusters/{name}/pod-checks/{id}": {"name": "cluster", "id": "check"},
    "/clusters/{name}/nodes": {"name": "cluster"},
    "/clusters/{name}/nodes/{node}": {"name": "cluster", "node": "machine"},
    "/queues/{name}/versions": {"name": "queue"},
    "/quotas/{flavor}": {"flavor": "kind"},
    "DELETE /api/v1/flavors/{name}": {"name": "unused_kind"},
    "DELETE /api/v1/cohorts/{name}": {"name": "unused_cohort"},
    "/quota-requests/{id}": {"id": "asked"},
    "DELETE /api/v1/quota-requests/{id}": {"id": "unused_asked"},
    "/volumes/{name}": {"name": "volume"},
    "DELETE /api/v1/teams/{team}/volumes/{name}": {"name": "unused_volume"},
    "DELETE /api/v1/teams/{team}/secrets/{name}": {"name": "unused_secret"},
}
SUBMITTED = {"queue": "default", "command": ["torchrun", "train.py"], "nodes": 1, "nproc_per_node": 1}
PLAIN_BODIES = {
    "POST /api/v1/jobs": SUBMITTED,
    "POST /api/v1/plans": SUBMITTED,
    "POST /api/v1/queues": {"name": "more", "team": "nlp", "cluster": "local", "slots": 2},
    "POST /api/v1/tokens": {"name": "more"},
    "POST /api/v1/teams/{team}/webhooks": {"name": "more", "url": "https://93.184.216.34/", "events": ["end"]},
    "PATCH /api/v1/teams/{team}/webhooks/{name}": {"is_active": True},
    "POST /api/v1/teams/{team}/volumes": {"cluster": "local", "name": "more", "size": "1Gi"},
    "PATCH /api/v1/teams/{team}/volumes/{name}": {"size": "2Gi"},
    "POST /api/v1/teams/{team}/allowed": {"cluster": "local", "kind": "secret", "name": "more"},
    "POST /api/v1/teams/{team}/secrets": {"name": "more", "values": {"HF_TOKEN": "x"}},
    "PATCH /api/v1/teams/{team}/secrets/{name}": {"values": {"HF_TOKEN": "y"}},
    "PUT /api/v1/teams/{team}/quotas/{flavor}": {"nominal": 9},
    "POST /api/v1/quota-requests": {"queue": "default", "slots": 64, "why": "more"},
    "POST /api/v1/quota-requests/{id}": {"verdict": "grant"},
    "POST /api/v1/workspaces": {"team": "nlp", "set": []},
    "POST /api/v1/workspaces/missing": {"team": "nlp", "digests": []},
    "POST /api/v1/workspaces/files": b"odd",
}
PLAIN_QUERIES = {
    "POST /api/v1/workspaces/files": {"team": "nlp"},
    "GET /api/v1/jobs/{id}/logs/search": {"text": "line"},
}


def make_plain(case, *, name) -> None:
    """Reduce the request to its required parameters."""
    case.query = dict(PLAIN_QUERIES.get(name, {}))
    if name in PLAIN_BODIES:
        case.body = PLAIN_BODIES[name]


def make_real(case, real, *, name) -> None:
    """Replace generated identifiers by those of existing objects."""
    for part in (case.path_parameters, case.body):
        if isinstance(part, dict):
            part.update({key: value for key, value in real.items() if key in part and part[key] is not None})
    for ending, keys in AT.items():
        if name.endswith(ending):
            case.path_parameters.update({key: real[value] for key, value in keys.items()})


@pytest.mark.parametrize("name", [one for one in NAMES if OPERATIONS[one].body or OPERATIONS[one].query])
def test_invalid_requests_are_refused_as_described(world, name):
    operation = OPERATIONS[name]

    @limited
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def requests(case):
        ask(case, world, [*CHECKS, negative_data_rejection])

    requests()


# Values that Python accepts as JSON, or JSON as text, and that neither a column nor a response can hold.
ODD_VALUES = (
    '"a\\u0000b"',
    '"\\ud800"',
    '"x\\udfff"',
    "Infinity",
    "-Infinity",
    "NaN",
    "1e999",
    "[" * 400 + "]" * 400,
    '{"a":' * 400 + "1" + "}" * 400,
)
ODD_TEXTS = (
    "\0",
    "a\0b",
    "cD1hYmM=",
    "cD0tMQ==",
    "cD05OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk=",
    "eJyLNtQx0DHQMYiOjQUAD9YCXg",
    "\ufffd",
    "9" * 40,
)
ODD_MARK = "@odd@"


@pytest.mark.parametrize("name", [one for one in NAMES if OPERATIONS[one].body or OPERATIONS[one].query])
def test_values_that_no_field_can_hold_are_refused_as_described(world, name):
    """One bad value in an otherwise valid request: NUL, lone surrogates, Infinity, deep nesting, broken cursors.

    That each is refused everywhere is shown by tests/unit/common/test_json_input.py and tests/unit/core/test_cursor.py.
    """
    operation = OPERATIONS[name]

    @partial(limited, examples=FEW)
    @given(
        case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
        value=st.sampled_from(ODD_VALUES),
        text=st.sampled_from(ODD_TEXTS),
        data=st.data(),
    )
    def requests(case, value, text, data):
        make_real(case, world["real"], name=name)
        is_told = isinstance(case.body, dict) and case.media_type == "application/json"
        if is_told:
            field = data.draw(st.sampled_from(sorted(case.body) or ["surplus"]))
            case.body = json.dumps({**case.body, field: ODD_MARK}).replace(json.dumps(ODD_MARK), value).encode()
        elif operation.query:
            asked = data.draw(st.sampled_from([one.name for one in operation.query]))
            case.query = {**(case.query or {}), asked: text}
        status = ask(case, world, CHECKS)
        assert status in REFUSED if is_told else status < 500, status

    requests()


REFUSED = {400, 401, 403, 404, 429}  # authorization and the path may be checked before the body


def test_every_operation_is_tested():
    described = sum(len(one) for one in DESCRIPTION["paths"].values())
    assert len(OPERATIONS) == described >= 35
    assert DESCRIPTION["openapi"].startswith("3.1")
    assert {"GET /api/v1/jobs/{id}/logs/stream"} == STREAMS


def test_every_operation_describes_its_error_responses():
    for path, operations in DESCRIPTION["paths"].items():
        for method, one in operations.items():
            assert {"400", "401", "429"} <= set(one["responses"]), (method, path)
