"""Clients and servers that are one release apart understand each other, by the API's description of the release before.

When a release is made, `python -m tests.contract.test_release_before` writes the description of today into
release_before.json, and the client of today into client_before.zip (tests/system/stack/test_client_before.py runs it).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import muster.jobs.models as models
import pytest
from drf_spectacular.generators import SchemaGenerator

from common.client_wheel import wheel
from tests.contract import shape

FILE = Path(__file__).with_name("release_before.json")
CLIENT = Path(__file__).with_name("client_before.zip")  # a wheel
BEFORE: dict[str, Any] = json.loads(FILE.read_text())
# What a client reads of an answer, and with which of its models.
READ = {
    "GET /api/v1/jobs/{id}": models.Job,
    "GET /api/v1/jobs": models.Job,
    "GET /api/v1/jobs/{id}/events": models.Event,
    "GET /api/v1/jobs/{id}/ranks": models.Rank,
    "GET /api/v1/queues": models.Queue,
    "GET /api/v1/me": models.Me,
    "POST /api/v1/login": models.Login,
    "GET /api/v1/workspaces/{id}": models.Workspace,
}


@pytest.fixture(scope="module")
def today() -> dict[str, Any]:
    return shape.of(json.loads(json.dumps(SchemaGenerator().get_schema(request=None, public=True), default=str)))


@pytest.mark.parametrize("operation", BEFORE)
def test_what_a_client_of_the_release_before_sends_is_accepted(today, operation):
    before, now = BEFORE[operation], today[operation]
    for where in ("parameters", "body"):
        assert set(before[where]) - set(now[where]) == set(), f"{where} that are gone"
        required = {name for name, is_required in now[where].items() if is_required}
        assert required - {name for name, was in before[where].items() if was} == set(), (
            f"{where} that must be sent now"
        )


@pytest.mark.parametrize("operation", BEFORE)
def test_what_a_client_of_the_release_before_reads_is_answered(today, operation):
    for status, fields in BEFORE[operation]["answers"].items():
        now = today[operation]["answers"][status]
        assert set(fields) - set(now) == set(), "fields that are gone"
        other = {name: (kind, now[name]) for name, kind in fields.items() if not _kinds(now[name]) <= _kinds(kind)}
        assert other == {}, "fields that hold something else now"


@pytest.mark.parametrize("operation", READ)
def test_a_client_of_today_reads_the_answers_of_a_server_of_the_release_before(operation):
    fields = next(iter(BEFORE[operation]["answers"].values()))
    answer = _example(fields)
    (one,) = answer.get("results", [answer])
    assert len(one) > 1
    READ[operation].parse(one)


def _kinds(kind: str | list[str]) -> set[str]:
    return {kind} if isinstance(kind, str) else set(kind)


def _example(fields: dict[str, Any], *, name: str = "") -> Any:
    """The smallest answer with these fields: null where it may be, lists with one item."""
    kind = fields.get(name, "object")
    if "array" in _kinds(kind):
        return [_example(fields, name=f"{name}[]")] if f"{name}[]" in fields else []
    within = {one.removeprefix(f"{name}.").split(".")[0].split("[")[0] for one in fields if one.startswith(f"{name}.")}
    if not name:
        within = {one.split(".")[0].split("[")[0] for one in fields}
    if within and "null" not in _kinds(kind):
        return {one: _example(fields, name=f"{name}.{one}" if name else one) for one in within}
    return _value(kind)


def _value(kind: str | list[str]) -> Any:
    if "null" in _kinds(kind):
        return None
    values: dict[str, Callable[[], Any]] = {
        "string": lambda: "2026-01-01T00:00:00Z", "integer": lambda: 1, "number": lambda: 1.0, "boolean": lambda: True,
        "array": list, "object": dict, "": lambda: None,
    }  # fmt: skip
    return values[next(iter(_kinds(kind)))]()


if __name__ == "__main__":
    description = json.loads(json.dumps(SchemaGenerator().get_schema(request=None, public=True), default=str))
    FILE.write_text(json.dumps(shape.of(description), indent=1, sort_keys=True) + "\n")
    CLIENT.write_bytes(wheel().data)
