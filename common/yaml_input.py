"""YAML that a user wrote, read without what makes a short text a large value: anchors, aliases and tags."""

from typing import Any

import yaml

MOST_CHARACTERS = 512 * 1024
MOST_DEPTH = 50


def parse(text: str) -> Any:
    """Return the value of one document. Raises ValueError with what is wrong, where, and the way out."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"is longer than {MOST_CHARACTERS // 1024} KiB; shorten it")
    try:
        _check(text)
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise ValueError(f"is not valid YAML{where}: {getattr(error, 'problem', None) or error}") from error


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
