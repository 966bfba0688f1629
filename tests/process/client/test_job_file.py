"""Job files: text in, values out."""

from __future__ import annotations

import contextlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from muster.commands.job_file import FIELDS, job_value, merged, read_job
from muster.errors import JobFileError

JOB = """
queue: research
command: torchrun train.py --name "two words"
nodes: 2
nproc: 4
retries: 1
env:
  LR: 0.1
  DEBUG: true
  EMPTY:
volumes: data:/data
secrets: [HF_TOKEN]
"""


def test_a_job_file_uses_the_fields_of_the_api_or_the_names_of_flags() -> None:
    assert read_job(JOB, source="job.yaml") == {
        "queue": "research",
        "command": 'torchrun train.py --name "two words"',
        "nodes": 2,
        "nproc_per_node": 4,
        "max_retries": 1,
        "env": {"LR": "0.1", "DEBUG": "true", "EMPTY": ""},
        "volumes": ("data:/data",),
        "secrets": ("HF_TOKEN",),
    }


def test_words_and_variables_are_as_they_are_written() -> None:
    text = """
shared: &shared {SEED: 0042}
command: [python, train.py, --amp, true, --lr, 0.10, --tag, 010, --when, 2026-11-28, --none, null, 1e3]
env:
  <<: *shared
  ON: yes
  LR: 0.10
  ID: 010
  BIG: 1_000
  EMPTY:
  NOTHING: null
  QUOTED: "true"
"""
    found = read_job(text, source="job.yaml")
    words = ["--amp", "true", "--lr", "0.10", "--tag", "010", "--when", "2026-11-28", "--none", "null", "1e3"]
    assert found["command"] == ["python", "train.py", *words]
    variables = {"ON": "yes", "LR": "0.10", "ID": "010", "BIG": "1_000", "EMPTY": "", "NOTHING": "", "QUOTED": "true"}
    assert found["env"] == {"SEED": "0042", **variables}
    assert job_value("command", "[a, no]", source="--set") == ["a", "no"]
    assert job_value("nodes", "010", source="--set") == 8, "what is no text has YAML's types"


@pytest.mark.parametrize(
    "command", ["python a.py && python b.py", "echo $HOME\npython a.py\n", "a.py  # a comment", ""]
)
def test_a_command_in_one_text_stays_as_it_is_written(command: str) -> None:
    assert read_job(yaml.safe_dump({"command": command}), source="job.yaml") == {"command": command}


def test_flags_win_and_environments_are_merged_by_variable() -> None:
    file = {"queue": "a", "nodes": 2, "env": {"A": "1", "B": "2"}}

    found = merged(file, flags={"queue": "b", "nodes": None, "env": {"B": "3"}, "volumes": (), "priority": 0})

    assert found == {"queue": "b", "nodes": 2, "env": {"A": "1", "B": "3"}, "priority": 0}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("queue: [", "job.yaml is not valid YAML in line 1"),
        ("- queue", "job.yaml must contain fields such as"),
        ("", "job.yaml must contain fields such as"),
        ("command: {a: b}", "command must be a string or a list of strings"),
        ("env: [A]", "env must contain `KEY: value` lines"),
        ("!!python/object/apply:os.system ['true']", "job.yaml is not valid YAML"),
    ],
)
def test_an_invalid_job_file_is_an_error_that_names_the_place(text: str, sentence: str) -> None:
    with pytest.raises(JobFileError) as caught:
        read_job(text, source="job.yaml")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "roles: {worker: {cpu: .nan}}",
            "job.yaml: roles.worker.cpu has a value that is neither text nor a usual number",
        ),
        ("roles: {worker: {image: 2020-01-01}}", "roles.worker.image has a value that is neither text"),
        ("roles: &a [*a]", "roles is nested more than 50 levels deep, or within itself"),
        ("roles: &r {worker: *r}", "levels deep, or within itself"),
        ("roles: {worker: {1: 2}}", "roles.worker has the key 1, which is no text; put it in quotes"),
        ("roles: {worker: {cpu: 0x" + "f" * 5000 + "}}", "roles.worker.cpu has a value that is neither"),
    ],
)
def test_what_cannot_be_sent_is_named_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(JobFileError) as caught:
        read_job(text, source="job.yaml")
    assert sentence in str(caught.value)


@given(st.text())
def test_no_text_makes_the_parser_raise_another_error(text: str) -> None:
    with contextlib.suppress(JobFileError):
        assert set(read_job(text, source="x")) <= set(FIELDS)
