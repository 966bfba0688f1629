"""What an answer of the API server means: go on, try again later, or never. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from common.errors import Refused, Unreachable

from .decode import read_object
from .objects import words

LONGEST_WAIT = 30.0
# Of these a repetition says the same: a quota or a webhook's no, an object that is not valid, a namespace not there.
NEVER = frozenset({400, 403, 404, 405, 413, 415, 422})


@dataclass(frozen=True)
class Answer:
    """`content` is read only when somebody asks what it says."""

    status: int
    content: bytes
    retry_after: str = ""

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """As an object; plain text (a proxy's, a timeout's) as its message."""
        try:
            found = json.loads(self.content)
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {"message": self.content[:500].decode(errors="replace").strip()}

    @property
    def thing(self) -> Any:
        """The same by its shape, for who reads pods and Services; what is no JSON is nobody's object."""
        try:
            return read_object(self.content)
        except ValueError:
            return self.body

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_there_already(self) -> bool:
        """409 has two meanings; the other one (a conflict of versions, of quota) is worth another try."""
        return self.status == 409 and self.body.get("reason") == "AlreadyExists"

    @property
    def is_crowded(self) -> bool:
        """The server asks for less at once."""
        return self.status in (429, 503)

    @property
    def words(self) -> str:
        """The server's own."""
        return words(self.body.get("message"), most=1000) or f"it answered {self.status}"

    @property
    def wait_seconds(self) -> float:
        text = self.retry_after.strip()
        return min(float(text), LONGEST_WAIT) if text.isascii() and text.isdigit() and len(text) < 6 else 1.0


def need_created(answer: Answer, what: str) -> Mapping[str, Any]:
    """The body of a good answer; raises Refused for what will never work, Unreachable for the rest."""
    if answer.is_good:
        return answer.body
    if answer.status in NEVER:
        raise Refused(f"the cluster refuses {what}: {answer.words}")
    raise Unreachable(f"{what} is not created yet: {answer.words}")


def need(answer: Answer, what: str) -> Mapping[str, Any]:
    """For reading and deleting, where nothing is final: every bad answer means to look again later."""
    if answer.is_good:
        return answer.body
    if answer.status == 401:
        raise Unreachable(f"{what}: the cluster does not accept our credentials ({answer.words})")
    raise Unreachable(f"{what}: {answer.words}")
