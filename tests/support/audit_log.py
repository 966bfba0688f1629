"""What accounts asked of an API server, as rights: read from its audit log (rig/plane.py)."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Right = tuple[str, str, str]  # API group, resource with its subresource, verb


def asked(log: Path, *, user: str) -> dict[Right, set[int]]:
    """The answers' status codes, by what this user asked for."""
    found: dict[Right, set[int]] = {}
    for line in log.read_text().splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # the last line, which is being written
            continue
        if event["user"]["username"] == user and (of := event.get("objectRef")):
            resource = "/".join(filter(None, [of.get("resource"), of.get("subresource")]))
            right = (of.get("apiGroup", ""), resource, event["verb"])
            found.setdefault(right, set()).add(event.get("responseStatus", {}).get("code", 0))
    return found


def granted(rules: Iterable[dict[str, Any]]) -> set[Right]:
    """What the rules of a Role allow."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
