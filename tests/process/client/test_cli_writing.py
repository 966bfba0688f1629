"""Verbs that change teams, members, service accounts, tokens and queues."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.process.client.conftest import Run
from tests.process.client.fake import FakeMuster

# command: method, path, body, a word of its output
WRITES: dict[str, tuple[str, str, Any, str]] = {
    "teams create speech": ("POST", "/teams", {"name": "speech"}, "Created team speech"),
    "teams members add vision eve --role member": (
        "PUT", "/teams/vision/members/eve", {"role": "member"}, "eve is member of vision",
    ),
    "teams members set vision bob --role admin": (
        "PUT", "/teams/vision/members/bob", {"role": "admin"}, "bob is admin of vision",
    ),
    "teams members remove vision bob": ("DELETE", "/teams/vision/members/bob", None, "bob is no longer in vision"),
    "teams accounts add vision ci-bot --role viewer": (
        "POST", "/teams/vision/service-accounts", {"name": "ci-bot", "role": "viewer"},
        "`muster tokens create NAME --service-account ci-bot` creates a token for it",
    ),
    "teams accounts remove vision vision-bot": (
        "DELETE", "/teams/vision/service-accounts/vision-bot", None, "no longer a service account",
    ),
    "tokens create nightly": ("POST", "/tokens", {"name": "nightly"}, "mst_new_and_secret"),
    "tokens create nightly --scope read --team vision --days 7 --service-account vision-bot": (
        "POST", "/tokens",
        {"name": "nightly", "scope": "read", "team": "vision", "expires_in_days": 7, "service_account": "vision-bot"},
        "mst_new_and_secret",
    ),
    "tokens revoke 2": ("DELETE", "/tokens/2", None, "Revoked token 2"),
    "tokens revoke ci": ("DELETE", "/tokens/2", None, "Revoked token 2"),
    "tokens revoke mst_se": ("DELETE", "/tokens/1", None, "Revoked token 1"),
    "queues set research --slots 16 --close": (
        "PATCH", "/queues/research", {"slots": 16, "is_open": False}, "closed",
    ),
    "queues set closed --open --description big --gpus-per-node 8": (
        "PATCH", "/queues/closed", {"is_open": True, "description": "big", "gpus_per_node": 8}, "open",
    ),
    "queues set research --slots 16 --reason deadline": (
        "PATCH", "/queues/research", {"slots": 16, "reason": "deadline"}, "research",
    ),
    "queues set research --flavor h100 --borrow 4 --preempt": (
        "PATCH", "/queues/research", {"flavor": "h100", "borrowing_limit": 4, "preempts": True}, "h100",
    ),
    "queues set research --drain": ("PATCH", "/queues/research", {"is_open": False, "drains": True}, "draining"),
    "queues set research --longest 24h --per-user 16 --budget none --highest-priority -5 --largest-job 8": (
        "PATCH", "/queues/research",
        {"longest_seconds": 86400, "slots_per_user": 16, "budget_hours": None, "highest_priority": -5, "largest_job": 8},
        "priority -5, slots of a job 8, length of a job 1d, slots of a user 16",
    ),
    "queues set research --flavor none --borrow all": (
        "PATCH", "/queues/research", {"flavor": None, "borrowing_limit": None}, "research",
    ),
    "quota make-flavor h100 --cluster prod --gpus-per-node 8 --selector pool=h100 --selector zone=": (
        "PUT", "/flavors/h100",
        {"cluster": "prod", "gpus_per_node": 8, "node_selector": {"pool": "h100", "zone": ""}}, "Flavor h100 of cluster prod",
    ),
    "quota set vision h100 --nominal 8 --borrow all --lend 4 --weight 2 --cohort none --reason nodes": (
        "PUT", "/teams/vision/quotas/h100",
        {"nominal": 8, "borrowing_limit": None, "lending_limit": 4, "weight": 2.0, "cohort": None, "reason": "nodes"}, "h100",
    ),
    "queues ceiling vision gpu 64 --reason nodes": (
        "PUT", "/teams/vision/ceilings/gpu", {"slots": 64, "reason": "nodes"}, "64",
    ),
    "queues ceiling vision cpu none": ("PUT", "/teams/vision/ceilings/cpu", {"slots": None, "reason": ""}, "none"),
    "queues ceiling vision": ("GET", "/teams/vision/ceilings", None, "none"),
    "queues create night --team vision --slots 4 --cluster local --resource gpu": (
        "POST", "/queues", {"name": "night", "team": "vision", "slots": 4, "cluster": "local", "resource": "gpu"}, "Created queue night",
    ),
}  # fmt: skip


@pytest.mark.parametrize("command", WRITES)
def test_each_command_sends_its_request_and_prints_its_result(command: str, run: Run, logged_in: FakeMuster) -> None:
    method, path, body, said = WRITES[command]

    result = run(*command.split())

    last = logged_in.requests[-1]
    assert (result.exit_code, last["method"], last["path"]) == (0, method, f"/api/v1{path}"), result.stderr
    assert (json.loads(last["body"]) if last["body"] else None) == body
    assert said in result.stdout


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("teams members remove vision zoe", "zoe is not a member of vision: `muster teams members list vision` lists"),
        ("teams show nowhere", "no team nowhere that you may see: `muster teams` lists them"),
        ("queues show nowhere", "no queue nowhere that you may see: `muster queues` lists them"),
        ("tokens revoke 99", "no token 99 that you may revoke: `muster tokens` lists them"),
        ("tokens revoke nobody", "no token is called nobody: `muster tokens` lists them with their numbers"),
    ],
)
def test_a_missing_object_is_named_with_a_remedy(command: str, sentence: str, run: Run, logged_in: FakeMuster) -> None:
    result = run(*command.split())

    assert (result.exit_code, result.stdout) == (1, "")
    assert sentence in result.stderr


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("queues set research", "nothing to change: give --slots"),
        ("queues set research --reason x", "nothing to change: give --slots"),
        ("queues ceiling vision gpu", "SLOTS is needed after RESOURCE"),
        ("queues ceiling vision gpu many", "a whole number, or none for no ceiling"),
        ("logs 1 --regex", "add --find EXPRESSION"),
        ("teams members add vision eve", "Missing option '--role'"),
        ("tokens create x --days 366", "366 is not in the range 1<=x<=365"),
        ("tokens create x --scope all", "'all' is not one of 'read', 'submit', 'manage'"),
    ],
)
def test_wrong_usage_sends_no_request(command: str, sentence: str, run: Run, logged_in: FakeMuster) -> None:
    result = run(*command.split())

    assert (result.exit_code, logged_in.requests) == (2, [])
    assert sentence in result.stderr


def test_a_token_alone_is_printed_for_scripts(run: Run, logged_in: FakeMuster) -> None:
    assert run("tokens", "create", "ci", "-q").stdout == "mst_new_and_secret\n"
    people = run("tokens", "create", "ci")
    assert people.stdout == "mst_new_and_secret\n"
    assert "It is not shown again" in people.stderr


def test_an_ambiguous_name_of_a_token_revokes_neither(run: Run, logged_in: FakeMuster) -> None:
    run("tokens", "create", "ci")

    result = run("tokens", "revoke", "ci")

    assert "several tokens are called ci" in result.stderr
    assert logged_in.paths("DELETE") == []


def test_a_name_cannot_change_the_requested_path(run: Run, logged_in: FakeMuster) -> None:
    run("queues", "set", "../jobs/1?x=", "--open")

    assert logged_in.requests[-1]["path"] == "/api/v1/queues/..%2Fjobs%2F1%3Fx%3D"
