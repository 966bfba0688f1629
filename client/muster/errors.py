"""The package's errors, each with one line for people that says what to do about it.

MusterError
|- ConfigError             the configuration file cannot be used
|  `- NotLoggedIn          no server, or no token for it
|- WorkspaceError          the folder cannot be packed
|- JobFileError            a job file or an environment file is invalid
|- WaitTimeout             the job did not finish in time
|- Unreachable             no connection to the server
|  |- TimedOut             connected, but no answer in time
|  `- CutOff               an answer that broke off in the middle
|- UnexpectedAnswer        something answered, but not Muster's API
`- ApiError                the server refused (status, title, detail, problems)
   |- Invalid              400, 422
   |- Unauthorized         401
   |- Forbidden            403
   |- NotFound             404
   |- Conflict             409
   |- TooManyRequests      429
   `- ServerError          5xx
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class MusterError(Exception):
    """Base of every error this package raises on purpose; `str()` is one line for people."""


class ConfigError(MusterError):
    pass


class NotLoggedIn(ConfigError):
    pass


class WorkspaceError(MusterError):
    pass


class JobFileError(MusterError):
    pass


class WaitTimeout(MusterError, TimeoutError):
    pass


class Unreachable(MusterError):
    pass


class TimedOut(Unreachable):
    pass


class CutOff(Unreachable):
    pass


class UnexpectedAnswer(MusterError):
    pass


@dataclass(frozen=True)
class Problem:
    field: str
    message: str
    value: Any = None

    def __str__(self) -> str:
        given = "" if _is_contained(self.value, message=self.message) else f" (you gave {self.value!r})"
        return f"{self.field}: {self.message}{given}" if self.field else f"{self.message}{given}"


class ApiError(MusterError):
    """A problem-details answer (RFC 9457), parsed. `hint` is added by the client: what to do, where it knows."""

    def __init__(
        self,
        status: int,
        *,
        title: str = "",
        detail: str = "",
        problems: Sequence[Problem] = (),
        type: str = "about:blank",
        hint: str = "",
    ) -> None:
        self.status = status
        self.title = title
        self.detail = detail
        self.problems = tuple(problems)
        self.type = type
        self.hint = hint
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        sentence = self.detail or self.title or f"the server answered {self.status}"
        if self.problems:
            fields = "; ".join(str(problem) for problem in self.problems)
            sentence = fields if self._is_repeating(fields) else f"{self.detail.rstrip('.:')}: {fields}"
        sentence = " ".join(sentence.split())
        return f"{sentence.rstrip('.')}: {self.hint}" if self.hint else sentence

    def _is_repeating(self, fields: str) -> bool:
        """Return whether the detail repeats the field errors, as is common; the fields say where to change things."""
        plain = "; ".join(f"{problem.field}: {problem.message}" for problem in self.problems)
        return not self.detail or self.detail in fields or self.detail == plain


class Invalid(ApiError):
    pass


class Unauthorized(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class Conflict(ApiError):
    pass


class TooManyRequests(ApiError):
    pass


class ServerError(ApiError):
    pass


CLASS_OF_STATUS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Invalid,
    429: TooManyRequests,
}


def from_problem(status: int, *, problem: Mapping[str, Any], hint: str = "") -> ApiError:
    """Return the error for a problem-details object; missing or malformed members are left out."""
    kind = CLASS_OF_STATUS.get(status, ServerError if status >= 500 else ApiError)
    listed = problem.get("problems") or problem.get("errors")
    return kind(
        status,
        title=str(problem.get("title") or ""),
        detail=str(problem.get("detail") or ""),
        problems=[_problem(item) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else [],
        type=str(problem.get("type") or "about:blank"),
        hint=hint,
    )


def _problem(item: Mapping[str, Any]) -> Problem:
    return Problem(str(item.get("field") or ""), str(item.get("message") or "is not valid"), item.get("value"))


def _is_contained(value: Any, *, message: str) -> bool:
    """Return whether the message already contains the value, or there is none that fits in one line."""
    return value in (None, "", [], {}) or str(value) in message or len(str(value)) > 60
