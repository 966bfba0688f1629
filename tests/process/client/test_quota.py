"""Quotas as a file: written, compared with the server's, and applied in an order in which each change can be made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from muster.commands.quota_file import Known, changes, read, written
from muster.errors import JobFileError
from muster.jobs.models import Queue
from muster.teams.models_quotas import Cohort, Flavor, Quota

from tests.process.client.conftest import Run
from tests.process.client.fake import FakeMuster, problem

QUEUES = [
    Queue("train", team="nlp", cluster="prod", resource="gpu", nominal=48, gpus_per_node=8, policy="backfill"),
    Queue("small", team="nlp", cluster="prod", resource="gpu", nominal=16, policy="strict", is_open=False),
]
FLAVORS = [Flavor("h100", cluster="prod", gpus_per_node=8)]
COHORTS = [Cohort("eu")]
QUOTAS = {"nlp": {"h100": Quota("h100", cohort="eu", nominal=64, lending_limit=16)}}
KNOWN = Known(QUEUES, {"nlp": {"gpu": 64}}, FLAVORS, COHORTS, QUOTAS)


def told(text: str) -> list[str]:
    return [one.words for one in changes(read(text, source="f"), KNOWN, source="f")]


def test_a_file_as_it_is_exported_changes_nothing() -> None:
    text = written(KNOWN)
    assert told(text) == []
    content = yaml.safe_load(text)
    assert content["flavors"] == {"h100": {"cluster": "prod", "resource": "gpu", "gpus_per_node": 8}}
    assert content["cohorts"] == {"eu": {}}
    assert content["teams"]["nlp"]["quotas"] == {
        "h100": {"nominal": 64, "borrowing_limit": None, "lending_limit": 16, "weight": 1.0, "cohort": "eu"}
    }
    assert content["teams"]["nlp"]["queues"]["small"] == {
        "cluster": "prod", "resource": "gpu", "slots": 16, "policy": "strict", "is_open": False,
    }  # fmt: skip


def test_the_labels_of_a_flavors_nodes_are_in_the_file() -> None:
    pool = replace(FLAVORS[0], node_selector={"pool": "h100"})
    known = replace(KNOWN, flavors=[pool])
    text = written(known)
    assert yaml.safe_load(text)["flavors"]["h100"]["node_selector"] == {"pool": "h100"}
    assert changes(read(text, source="f"), known, source="f") == []
    with pytest.raises(JobFileError, match="a flavor cannot be changed"):
        changes(read(text, source="f"), KNOWN, source="f")


def test_ceilings_come_first_then_what_gives_quota_back_then_what_takes_it() -> None:
    text = """
teams:
  nlp:
    ceilings: {gpu: 80}
    queues:
      train: {slots: 64}
      small: {slots: 8, is_open: true, description: for tests}
      night: {cluster: prod, resource: gpu, slots: 8}
"""
    assert told(text) == [
        "team nlp: ceiling of gpu: slots 64 -> 80",
        "team nlp: queue small: slots 16 -> 8, is_open no -> yes, description none -> for tests",
        "team nlp: queue train: slots 48 -> 64",
        "team nlp: make queue night: cluster prod, resource gpu, slots 8",
    ]


def test_what_is_shared_is_made_before_who_shares_it_and_taken_after() -> None:
    text = """
cohorts:
  north: {above: all}
  all: {}
  eu: {above: all}
flavors:
  h200: {cluster: prod}
teams:
  nlp:
    quotas:
      h100: {nominal: 32, borrowing_limit: 8, lending_limit: null}
      h200: {nominal: 8, cohort: eu}
    queues:
      train: {slots: 32, flavor: h100, borrowing_limit: null, preempts: true}
"""
    assert told(text) == [
        "make flavor h200: cluster prod",
        "cohort all",
        "cohort north: above all",
        "cohort eu: above none -> all",
        "team nlp: quota of h200: nominal 8, cohort eu",
        "team nlp: queue train: slots 48 -> 32, flavor none -> h100, borrowing_limit 0 -> none, preempts no -> yes",
        "team nlp: quota of h100: nominal 64 -> 32, borrowing_limit none -> 8, lending_limit 16 -> none",
    ]


def test_a_quota_that_has_drifted_is_seen() -> None:
    said = Queue.parse({"name": "train", "team": "nlp", "nominal": 8, "flavor": None, "borrowing_limit": 0})
    text = written(Known([said], quotas={"nlp": {"h100": Quota("h100", nominal=8)}}))
    drifted = Queue.parse({**said.raw, "flavor": "h100", "borrowing_limit": None, "preempts": True})
    there = Known([drifted], quotas={"nlp": {"h100": Quota("h100", nominal=8, lending_limit=2, weight=3, cohort="x")}})
    words = [one.words for one in changes(read(text, source="f"), there, source="f")]
    assert words == [
        "team nlp: quota of h100: lending_limit 2 -> none, weight 3 -> 1.0, cohort x -> none",
        "team nlp: queue train: flavor h100 -> none, borrowing_limit none -> 0, preempts yes -> no",
    ]


def test_limits_are_in_the_file_and_one_that_has_drifted_is_seen() -> None:
    said = {"name": "train", "team": "nlp", "nominal": 8, "drains": False, "slots_per_user": 4, "largest_job": None}
    text = written(Known([Queue.parse(said)]))
    there = Known([Queue.parse({**said, "slots_per_user": None, "largest_job": 2, "is_open": False, "drains": True})])
    assert [one.words for one in changes(read(text, source="f"), there, source="f")] == [
        "team nlp: queue train: largest_job 2 -> none, slots_per_user none -> 4, is_open no -> yes, drains yes -> no"
    ]
    assert "drains" not in written(Known([Queue("old", team="nlp")])), "a server of the release before has no limits"


def test_what_is_shared_is_sent_as_it_is_written(run: Run, logged_in: FakeMuster, tmp_path: Path) -> None:
    file = tmp_path / "quota.yaml"
    quotas = {"h100": {"nominal": 8, "cohort": "all", "lending_limit": None}}
    queues = {"research": {"flavor": "h100", "borrowing_limit": None}}
    shared = {"flavors": {"h100": {"cluster": "local"}}, "cohorts": {"all": {}}}
    file.write_text(yaml.safe_dump({**shared, "teams": {"vision": {"quotas": quotas, "queues": queues}}}))
    done = run("quota", "apply", str(file))
    assert done.exit_code == 0, done.stderr
    sent = [(one["path"], json.loads(one["body"])) for one in logged_in.requests if one["method"] in ("PUT", "PATCH")]
    assert sent == [
        ("/api/v1/flavors/h100", {"cluster": "local"}),
        ("/api/v1/cohorts/all", {"above": None}),
        ("/api/v1/teams/vision/quotas/h100", {"nominal": 8, "cohort": "all"}),
        ("/api/v1/queues/research", {"flavor": "h100", "borrowing_limit": None}),
    ]
    assert run("quota", "diff", str(file)).exit_code == 0
    shown = run("quota", "list", "vision")
    assert "h100" in shown.stdout and "all" in shown.stdout


def test_a_server_without_flavors_has_the_rest(
    run: Run, logged_in: FakeMuster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged_in, "get_flavors", lambda seen: problem(404, "Not found", "no such page"))
    exported = run("quota", "export")
    assert exported.exit_code == 0 and "research" in yaml.safe_load(exported.stdout)["teams"]["vision"]["queues"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("teams: [nlp]", "teams must map names to values"),
        ("teams: {nlp: {queue: {}}}", "teams.nlp.queue is not known; known are ceilings, quotas, queues"),
        ("teams: {nlp: {queues: {train: {slot: 1}}}}", "teams.nlp.queues.train.slot is not known; known are cluster"),
        ("teams: {nlp: {ceilings: {gpu: 64GB}}}", "teams.nlp.ceilings.gpu is '64GB'; write a whole number, or null for none"),
        ("teams: {nlp: {ceilings: {gpu: true}}}", "write a whole number"),
        ("teams: {nlp: {queues: {new: {slots: 1}}}}", "teams.nlp.queues.new is no queue yet; to make it, give cluster"),
        ("teams: {vision: {queues: {train: {slots: 1}}}}", "is a queue of team nlp; a queue cannot be given to another team"),
        ("teams: {nlp: {queues: {train: {cluster: other}}}}", "train.cluster is 'other', and 'prod' of the queue that is there"),
        ("flavors: {h100: {cluster: other}}", "flavors.h100.cluster is 'other', and 'prod' of the flavor that is there"),
        ("flavors: {new: {resource: gpu}}", "flavors.new is no flavor yet; to make it, give cluster"),
        ("cohorts: {eu: {parent: x}}", "cohorts.eu.parent is not known; known are above"),
        ("teams: {nlp: {quotas: {new: {weight: 2}}}}", "teams.nlp.quotas.new is no quota yet; to make it, give nominal"),
        ("teams: {nlp: {quotas: {h100: {nominal: 512GB}}}}", "nominal is '512GB'; write a whole number"),
        ("teams: {nlp: [", "is not valid YAML in line 1"),
        ("", "teams must map names to values"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_path(text: str, said: str) -> None:
    with pytest.raises(JobFileError) as refused:
        told(text)
    assert said in str(refused.value)


def test_the_commands_export_compare_and_apply(run: Run, logged_in: FakeMuster, tmp_path: Path) -> None:
    exported = run("quota", "export")
    assert exported.exit_code == 0, exported.stderr
    file = tmp_path / "quota.yaml"
    file.write_text(exported.stdout)
    assert run("quota", "diff", str(file)).exit_code == 0
    found = yaml.safe_load(exported.stdout)
    (team,) = [name for name, one in found["teams"].items() if "research" in one["queues"]]
    found["teams"][team]["queues"]["research"]["slots"] = 99
    file.write_text(yaml.safe_dump(found))
    differs = run("quota", "diff", str(file))
    assert (differs.exit_code, "queue research: slots" in differs.stdout) == (1, True)
    done = run("quota", "apply", str(file), "--reason", "more nodes")
    assert done.exit_code == 0, done.stderr
    last = logged_in.requests[-1]
    assert (last["method"], last["path"]) == ("PATCH", "/api/v1/queues/research")
    assert json.loads(last["body"]) == {"slots": 99, "reason": "more nodes"}


def test_the_first_change_that_is_refused_ends_it_with_the_server_s_own_words(
    run: Run, logged_in: FakeMuster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged_in, "patch_queues", lambda seen, name: problem(403, "Forbidden", "ask an administrator"))
    (team,) = {one["team"] for one in logged_in.queues}
    changed = {one["name"]: {"slots": 99 + number} for number, one in enumerate(logged_in.queues)}
    file = tmp_path / "quota.yaml"
    file.write_text(yaml.safe_dump({"teams": {team: {"queues": changed}}}))
    refused = run("quota", "apply", str(file))
    assert refused.exit_code == 77, "as of any other refusal"
    assert "ask an administrator" in refused.stderr
    assert "refused: team" in refused.stderr and "1 change after it not tried" in refused.stderr
    assert logged_in.paths("PATCH") == [f"/api/v1/queues/{min(changed)}"]
