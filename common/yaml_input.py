"""YAML that a user wrote, read as plain values, without what makes a short text a large value: anchors, aliases and tags.

A scalar is null, a boolean, a decimal number or text, as in JSON. Dates, octal and hexadecimal numbers stay text.
"""

import re
from typing import Any

import yaml

MOST_CHARACTERS = 512 * 1024
MOST_DEPTH = 50
_SCALARS = (
    ("null", re.compile(r"(null|~|)\Z"), ["n", "~", ""]),
    ("bool", re.compile(r"(true|false)\Z"), [*"tf"]),
    ("int", re.compile(r"-?(0|[1-9][0-9]{0,17})\Z"), [*"-0123456789"]),
    ("float", re.compile(r"-?(0|[1-9][0-9]{0,17})\.[0-9]{1,18}([eE][-+]?[0-9]{1,2})?\Z"), [*"-0123456789"]),
)


class _Plain(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}


for _kind, _form, _first in _SCALARS:
    _Plain.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", _form, _first)


def parse(text: str) -> Any:
    """Return the value of one document. Raises ValueError with what is wrong, where, and the way out."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"is longer than {MOST_CHARACTERS // 1024} KiB; shorten it")
    try:
        _check(text)
        value = _Plain(text).get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise ValueError(f"is not valid YAML{where}: {getattr(error, 'problem', None) or error}") from error
    _check_texts(value)
    return value


def _check(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ValueError(f"has an anchor or alias in line {line}; write the value itself")
        if getattr(event, "tag", None):
            raise ValueError(f"has a tag in line {line}; remove it")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise ValueError(f"is nested more than {MOST_DEPTH} levels deep in line {line}")


def _check_texts(value: Any) -> None:
    """Refuse keys that are no text, and texts that no row can hold."""
    if isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, str):
                raise ValueError(f"has the key {key}, which is no text; put it in quotes")
            _check_texts(key)
            _check_texts(one)
    elif isinstance(value, list):
        for one in value:
            _check_texts(one)
    elif isinstance(value, str) and ("\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value)):
        raise ValueError("has a character that no text may have (NUL, or half of a surrogate pair); remove it")
