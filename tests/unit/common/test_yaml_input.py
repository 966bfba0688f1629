"""YAML of users: values as usual, and nothing that grows."""

import pytest

from common import yaml_input


def test_a_document_is_read():
    assert yaml_input.parse("head: {cpu: 4, memory: 16Gi}\nworker:\n  image: a:1") == {
        "head": {"cpu": 4, "memory": "16Gi"}, "worker": {"image": "a:1"},
    }  # fmt: skip
    assert yaml_input.parse("") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", "010"), ("0x1f", "0x1f"), ("0x" + "f" * 5000, "0x" + "f" * 5000), ("9" * 5000, "9" * 5000), ("1:01:01", "1:01:01"),
        ("2020-01-01", "2020-01-01"), (".nan", ".nan"), ("yes", "yes"), ("true", True), ("-3", -3), ("0.5", 0.5), ("1.5e3", 1500.0),
        ("~", None), ("1Gi", "1Gi"),
    ],
)  # fmt: skip
def test_a_scalar_is_what_json_has_and_otherwise_text(text, value):
    assert yaml_input.parse(f"a: {text}") == {"a": value}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x [1]\nb: *x", "has an anchor or alias in line 1"),
        ("a: 1\nb: !!python/object:os.system x", "has a tag in line 2"),
        ("a: [", "is not valid YAML in line 1"),
        ("a: 1\n b: 2", "is not valid YAML in line 2"),
        ("a: 1\n---\nb: 2", "is not valid YAML"),
        ("[" * 100 + "]" * 100, "is nested more than 50 levels deep"),
        ("a: " + "x" * 600_000, "is longer than 512 KiB"),
        ("a: \x00", "is not valid YAML"),
        ('a: "\\0"', "has a character that no text may have"),
        ('a: ["\\ud800"]', "has a character that no text may have"),
        ("1: a", "has the key 1, which is no text"),
        ("a: {null: 1}", "has the key None, which is no text"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, words):
    with pytest.raises(ValueError, match=words):
        yaml_input.parse(text)
