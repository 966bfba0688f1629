"""YAML of users: values as usual, and nothing that grows."""

import pytest

from common import yaml_input


def test_a_document_is_read():
    assert yaml_input.parse("head: {cpu: 4, memory: 16Gi}\nworker:\n  image: a:1") == {
        "head": {"cpu": 4, "memory": "16Gi"}, "worker": {"image": "a:1"},
    }  # fmt: skip
    assert yaml_input.parse("") is None


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
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, words):
    with pytest.raises(ValueError, match=words):
        yaml_input.parse(text)
