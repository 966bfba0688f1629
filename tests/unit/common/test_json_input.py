"""JSON bodies are parsed strictly: what no column, log or response can hold is refused at its field, in bounded memory."""

import json
import tracemalloc

import pytest

from common.errors import Unreadable
from common.http import json_input

DEEP = 500  # deep enough to parse, but to fail in later processing
# The text of a JSON value, and a word of the expected message.
VALUES = {
    '"a\\u0000b"': "NUL",
    '"\\ud800"': "surrogate",
    '"a\\udfffb"': "surrogate",
    "Infinity": "finite",
    "-Infinity": "finite",
    "NaN": "finite",
    "1e999": "finite",
    "[" * DEEP + "]" * DEEP: "deeper",
    '{"a":' * DEEP + "1" + "}" * DEEP: "deeper",
    "[" * 50_000 + "]" * 50_000: "deeper",
}


def problem(text: str):
    with pytest.raises(Unreadable) as refusal:
        json_input.refuse_unfit(json_input.loads(text.encode()))
    (found,) = refusal.value.problems
    return found


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
@pytest.mark.parametrize(
    ("body", "field"), [('{"a": 1, "nodes": %s}', "nodes"), ('{"env": {"A": %s}}', "env.A"), ('{"command": ["x", %s]}', "command.1")]
)  # fmt: skip
def test_a_malformed_value_is_refused_with_its_field(body, field, value):
    found = problem(body % value)
    assert VALUES[value] in found.message
    is_too_deep = VALUES[value] == "deeper"  # the field is that of the outermost container, if it could be parsed
    assert found.field in ((field.partition(".")[0], "body") if is_too_deep else (field,))


def test_a_malformed_key_is_named():
    found = problem('{"env": {"\\ud800": "x"}}')
    assert found.field == "env.\ud800" and "surrogate" in found.message


@pytest.mark.parametrize(
    "body", ['{"secrets": {"A": %s}}', '{"password": %s}', '{"code": %s}', '{"values": {"A": %s}}']
)
def test_a_refusal_does_not_contain_the_value_of_a_secret(body):
    found = problem(body % '"hunter2\\u0000"')
    assert found.value is None and "hunter2" not in found.message


def most_memory(act) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("head", ["%s", '{"a": %s}', "[%s]"])
def test_memory_use_is_bounded_for_a_long_key_above_a_long_list(head):
    """The name of the field used to be kept for each value: a body of 1 MB took 125 GB."""
    body = head % ('{"' + "k" * 20_000 + '": [' + "0," * 20_000 + "0]}")
    found = json_input.loads(body.encode())
    assert most_memory(lambda: json_input.refuse_unfit(found)) < 1_000_000


@pytest.mark.parametrize("value", ["0", "[]", "{}", '"a"', '{"a": 0}', "[" * 500 + "]" * 500])
def test_a_body_of_too_many_values_is_refused_before_it_is_built(value):
    count = json_input.MAX_VALUES // value.count("[") if "[" in value else json_input.MAX_VALUES
    body = b"[" + b",".join([value.encode()] * (count + 1)) + b"]"

    def read():
        with pytest.raises(Unreadable, match="more than 1,000,000 values"):
            json_input.loads(body)

    assert most_memory(read) < 1_000_000


def test_a_workspace_with_the_maximum_of_files_is_accepted():
    entry = {"path": "a" * 100, "kind": "file", "size": 1, "digest": "0" * 64, "executable": True}
    body = json.dumps({"set": [entry] * 100_000, "remove": ["a"] * 100_000})
    assert len(json_input.loads(body.encode())["set"]) == 100_000


@pytest.mark.parametrize(
    ("found", "field"),
    [
        ({"a": [{"b": "\0"}]}, "a.0.b"), ([0, [1.5, float("inf")]], "1.1"), ("\0", "body"), ({"": {"": "\0"}}, "body"),
        ({"a": [[], {}, {"b": []}], "c": "\ud800"}, "c"), ({"a": {"b": {"\0": 1}}}, "a.b.\0"), ([[[]], "\0"], "1"),
    ],
)  # fmt: skip
def test_the_field_of_a_malformed_value_is_named(found, field):
    with pytest.raises(Unreadable) as refusal:
        json_input.refuse_unfit(found)
    assert refusal.value.problems[0].field == field


def test_ordinary_depth_is_accepted():
    json_input.refuse_unfit({"env": {"A": "\N{GRINNING FACE} \x01"}, "volumes": ["a"], "nodes": 1.5})
    nested: list = []
    for _ in range(json_input.MAX_DEPTH - 1):
        nested = [nested]
    json_input.refuse_unfit(nested)
