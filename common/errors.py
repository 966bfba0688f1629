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

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

MOST_PROBLEMS = 20  # reported at once


@dataclass(frozen=True)
class Problem:
    """What is wrong with one field: its dotted name, the value given, and a message that says how to fix it."""

    field: str
    value: object
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def the_first(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the first MOST_PROBLEMS problems; where there are more, one more entry says how many."""
    left = iter(problems)
    told = tuple(islice(left, MOST_PROBLEMS))
    more = sum(1 for _ in left)
    return (*told, Problem("body", more, f"has {more:,} more problems; correct these first")) if more else told


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
        self.field, self.value = field, value
        super().__init__(message)


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


class Refused(ClusterError):
    pass


class Sealed(ClusterError):
    pass


class LeaseLost(MusterError):
    pass
