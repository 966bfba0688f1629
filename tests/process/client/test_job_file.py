"""Job files and environment files: text in, values out."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from muster.commands.job_file import FIELDS, merged, read_env, read_job
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


def test_an_environment_file_is_read_in_shell_syntax() -> None:
    text = "# comment\n\nA=1\nexport B=two words # said\nC='single # quoted'\nD=\"double\"\nE=\nF=a=b\n G = spaced \n"

    assert read_env(text, source=".env") == {
        "A": "1", "B": "two words", "C": "single # quoted", "D": "double", "E": "", "F": "a=b", "G": "spaced",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("A=1\nnonsense", ".env, line 2: 'nonsense' is not KEY=VALUE"),
        ("=1", "line 1: '=1' is not KEY=VALUE"),
        ("A B=1", "is not KEY=VALUE"),
        ("A='open", "line 1: a quote is not closed"),
    ],
)
def test_a_line_without_a_variable_is_an_error_naming_it(text: str, sentence: str) -> None:
    with pytest.raises(JobFileError) as caught:
        read_env(text, source=".env")
    assert sentence in str(caught.value)


@given(st.text())
def test_no_text_makes_the_parsers_raise_another_error(text: str) -> None:
    for reader in (read_job, read_env):
        try:
            found = reader(text, source="x")
        except JobFileError:
            continue
        assert reader is read_env or set(found) <= set(FIELDS)
