"""What an account asked of the API server, counted by the server itself: its audit log. Pure, but for reading the file."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

MUTATING = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True)
class AuditedRequest:
    verb: str
    kind: str
    is_good: bool
    at: float  # when it was received, and when it was answered: seconds since the epoch
    answered_at: float
    selector: str = ""
    namespace: str = ""

    @property
    def is_mutating(self) -> bool:
        return self.verb in MUTATING


def read(lines: Iterable[str]) -> list[AuditedRequest]:
    return [_asked(json.loads(line)) for line in lines if line.strip()]


def since(path: Path, place: int) -> list[AuditedRequest]:
    """What was written after this place in the file, whole lines only."""
    with path.open("rb") as file:
        file.seek(place)
        return read(file.read().decode().rpartition("\n")[0].splitlines())


def lists_of_a_job(asked: Iterable[AuditedRequest], *, attempt_label: str) -> int:
    """Lists of pods by an attempt's label; the watch's own selects whatever is ours."""
    return sum(one.verb == "list" and one.kind == "pods" and attempt_label in one.selector for one in asked)


def creating_seconds(asked: Iterable[AuditedRequest]) -> float:
    """From the first creation of a pod received to the last one answered."""
    pods = [one for one in asked if (one.verb, one.kind) == ("create", "pods") and one.is_good]
    return max(one.answered_at for one in pods) - min(one.at for one in pods) if pods else 0.0


def _asked(event: dict[str, Any]) -> AuditedRequest:
    uri = str(event.get("requestURI", ""))
    selector = uri.partition("labelSelector=")[2].partition("&")[0]
    return AuditedRequest(
        str(event["verb"]), str(event.get("objectRef", {}).get("resource", "")),
        200 <= int(event.get("responseStatus", {}).get("code", 0)) < 300,
        _seconds(event["requestReceivedTimestamp"]), _seconds(event["stageTimestamp"]), selector,
        str(event.get("objectRef", {}).get("namespace", "")),
    )  # fmt: skip


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
