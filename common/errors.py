"""Everything Muster raises on purpose.

MusterError
├── InvalidInput          the request is wrong; carries one Problem per field. Never retried.
│   ├── InvalidSpec       a job description that cannot be planned
│   └── Unreadable        not a valid value for any field: a NUL, a foreign cursor (400, not 422)
├── Conflict              the request is fine, the state is not (a name taken, a finished job). Not retried as is.
├── NotAllowed            the caller may not do this. Not retried.
├── Busy                  too many of these requests at once; the caller retries after `seconds`
├── ClusterError          something outside refused or failed
│   ├── Unreachable       no answer; retried later, changes nothing meanwhile
│   ├── Refused           the cluster's own message means that it will never work. Not retried.
│   └── Sealed            the attempt was closed; a late call must not create anything. Not retried.
└── LeaseLost             another process visits this job now; the visit ends. Not retried by this one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

MOST_PROBLEMS = 20  # reported at once
MOST_ECHOED = 200  # characters of a value that a refusal repeats
_UNBROKEN = re.compile(rf"\S{{{MOST_ECHOED + 1},}}")  # no message of ours has such a word; it is part of a value


def shortened(text: str) -> str:
    """Return at most MOST_ECHOED characters, the last one being an ellipsis if some are left out."""
    return text if len(text) <= MOST_ECHOED else f"{text[: MOST_ECHOED - 1]}…"


def bounded(message: str, value: object = None) -> str:
    """Return a message that repeats at most MOST_ECHOED characters of the value that it is about."""
    if len(message) <= MOST_ECHOED:
        return message
    text = _text_of(value)
    for given in (text, repr(text)[1:-1]):
        if len(given) > MOST_ECHOED:
            message = message.replace(given, shortened(given))
    return _UNBROKEN.sub(lambda found: shortened(found[0]), message)


def _text_of(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number of thousands of digits"


@dataclass(frozen=True)
class Problem:
    """What is wrong with one field: its dotted name, the value given, and a message that says how to fix it.

    A long value is kept shortened, as text, here and in the message: the sender has all of it.
    """

    field: str
    value: object
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", bounded(self.message, self.value))
        object.__setattr__(self, "field", shortened(self.field))
        if len(text := _text_of(self.value)) > MOST_ECHOED:
            object.__setattr__(self, "value", shortened(text))

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def the_first(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the first MOST_PROBLEMS problems; where there are more, one more entry says how many."""
    left = iter(problems)
    kept = tuple(islice(left, MOST_PROBLEMS))
    more = sum(1 for _ in left)
    return (*kept, Problem("body", more, f"has {more:,} more problems; correct these first")) if more else kept


class MusterError(Exception):
    """Base of all errors raised on purpose; `retry` says whether the same call may work later."""

    retry = False


class InvalidInput(MusterError):
    def __init__(self, *problems: Problem):
        self.problems = the_first(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class InvalidSpec(InvalidInput):
    pass


class Unreadable(InvalidInput):
    pass


class Conflict(MusterError):
    def __init__(self, message: str, field: str = "", value: object = None):
        problem = Problem(field, value, message)
        self.field, self.value = problem.field, problem.value
        super().__init__(problem.message)


class NotAllowed(MusterError):
    pass


class Busy(MusterError):
    retry = True

    def __init__(self, message: str, *, seconds: int):
        self.seconds = seconds
        super().__init__(f"{message}; try again in {seconds} s")


class ClusterError(MusterError):
    pass


class Unreachable(ClusterError):
    retry = True


class NotReadYet(Unreachable):
    """A cluster's first answer is still on its way, and nothing speaks against it."""


class Refused(ClusterError):
    pass


class Sealed(ClusterError):
    pass


class LeaseLost(MusterError):
    pass
