"""Classify answers of the API server: proceed, try again later, or never. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from common.errors import Refused, Unreachable

from .decode import read_object
from .objects import words

LONGEST_WAIT = 30.0
# Repeating these calls gives the same answer: refused by a webhook, invalid object, missing namespace. A quota that others
# use up is the exception.
NEVER = frozenset({400, 403, 404, 405, 413, 415, 422})
_QUOTA = re.compile(r"exceeded quota: [^,]+, requested: (?P<requested>.+), used: .+, limited: (?P<limited>.+)", re.S)
_AMOUNT = re.compile(r"([\w./-]+)=(\d+)(?![\w.])")  # of what is counted: pods and devices


@dataclass(frozen=True)
class ApiAnswer:
    """An HTTP answer. `content` is parsed only on access."""

    status: int
    content: bytes
    retry_after: str = ""

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """The body as an object; plain text (from a proxy, or a timeout) becomes its message."""
        try:
            found = json.loads(self.content)
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {"message": self.content[:500].decode(errors="replace").strip()}

    @property
    def thing(self) -> Any:
        """The body decoded by shape, for readers of pods and Services; without valid JSON, `body`."""
        try:
            return read_object(self.content)
        except ValueError:
            return self.body

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_there_already(self) -> bool:
        """Whether the object exists. A 409 can also mean a conflict (version, quota), which is worth a retry."""
        return self.status == 409 and self.body.get("reason") == "AlreadyExists"

    @property
    def lacks_right(self) -> bool:
        """Whether a creation is denied for want of a right, and not by a quota or a webhook."""
        return self.status == 403 and "cannot create resource" in self.words

    @property
    def is_over_quota(self) -> bool:
        """Whether a quota of the namespace (ResourceQuota) is used up, so that a creation works once others have ended.

        False where more of something is asked for than the quota has in all.
        """
        found = _QUOTA.search(self.words) if self.status == 403 else None
        return found is not None and not self.beyond_quota(_amounts(found["requested"]))

    def beyond_quota(self, wanted: Mapping[str, int]) -> str:
        """Return what of these amounts the quota that was exceeded never has, in words; empty where it may one day."""
        found = _QUOTA.search(self.words) if self.status == 403 else None
        limited = _amounts(found["limited"]) if found else {}
        lacks = [(name, limit) for name, limit in limited.items() if wanted.get(name, 0) > limit]
        return " and ".join(f"{wanted[name]} {name}, of which it allows {limit} in all" for name, limit in lacks)

    @property
    def is_crowded(self) -> bool:
        """Whether the server asks for fewer concurrent requests."""
        return self.status in (429, 503)

    @property
    def words(self) -> str:
        """The server's own message."""
        return words(self.body.get("message"), most=1000) or f"it answered {self.status}"

    @property
    def wait_seconds(self) -> float:
        text = self.retry_after.strip()
        return min(float(text), LONGEST_WAIT) if text.isascii() and text.isdigit() and len(text) < 6 else 1.0


def _amounts(text: str) -> dict[str, int]:
    return {name: int(count) for name, count in _AMOUNT.findall(text)}


def need_created(answer: ApiAnswer, what: str) -> Mapping[str, Any]:
    """Return the body of a good answer. Raises Refused for what will never work, Unreachable for the rest."""
    if answer.is_good:
        return answer.body
    if answer.is_over_quota:
        raise Unreachable(f"{what} waits for the quota of its namespace, which others use up: {answer.words}")
    if answer.status in NEVER:
        raise Refused(f"the cluster refuses {what}: {answer.words}")
    raise Unreachable(f"{what} is not created yet: {answer.words}")


def need(answer: ApiAnswer, what: str) -> Mapping[str, Any]:
    """Return the body of a good answer, for reads and deletes.

    Raises Unreachable for every bad answer: nothing is final here, so all of them are tried again later.
    """
    if answer.is_good:
        return answer.body
    if answer.status == 401:
        raise Unreachable(f"{what}: the cluster does not accept Muster's credentials ({answer.words})")
    raise Unreachable(f"{what}: {answer.words}")
