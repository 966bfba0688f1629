"""Quotas as a file: written, compared with the server's, and applied in an order in which each change can be made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from muster.commands.quota_file import changes, read, written
from muster.errors import JobFileError
from muster.jobs.models import Queue

from tests.process.client.conftest import Run
from tests.process.client.fake import FakeMuster, problem

QUEUES = [
    Queue("train", team="nlp", cluster="prod", resource="gpu", nominal=48, gpus_per_node=8, policy="backfill"),
    Queue("small", team="nlp", cluster="prod", resource="gpu", nominal=16, policy="strict", is_open=False),
]
CEILINGS = {"nlp": {"gpu": 64}}


def told(text: str) -> list[str]:
    return [one.words for one in changes(read(text, source="f"), QUEUES, CEILINGS, source="f")]


def test_a_file_as_it_is_exported_changes_nothing() -> None:
    text = written(QUEUES, CEILINGS)
    assert told(text) == []
    assert yaml.safe_load(text)["teams"]["nlp"]["queues"]["small"] == {
        "cluster": "prod", "resource": "gpu", "slots": 16, "policy": "strict", "is_open": False,
    }  # fmt: skip


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("teams: [nlp]", "teams must map names to values"),
        ("teams: {nlp: {queue: {}}}", "teams.nlp.queue is not known; known are ceilings, queues"),
        ("teams: {nlp: {queues: {train: {slot: 1}}}}", "teams.nlp.queues.train.slot is not known; known are cluster"),
        ("teams: {nlp: {ceilings: {gpu: 64GB}}}", "teams.nlp.ceilings.gpu is '64GB'; write a whole number, or null for none"),
        ("teams: {nlp: {ceilings: {gpu: true}}}", "write a whole number"),
        ("teams: {nlp: {queues: {new: {slots: 1}}}}", "teams.nlp.queues.new is no queue yet; to make it, give cluster"),
        ("teams: {vision: {queues: {train: {slots: 1}}}}", "is a queue of team nlp; a queue cannot be given to another team"),
        ("teams: {nlp: {queues: {train: {cluster: other}}}}", "train.cluster is 'other', and 'prod' of the queue that is there"),
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
