"""Keep secrets out of the server's own log, prevent forged lines, and bound the cost of each line.

Secrets are tokens, passwords and cookies. Every line passes through here, including those caused by unauthenticated
requests. So a text is cut first, and each pattern takes time linear in its length: repetitions are bounded or
possessive, and one that may fail starts only where a run begins.
"""

import logging
import re
from collections.abc import Iterator
from copy import copy
from typing import Any

from django.db import Error

from ..text import CONTROL, REORDERING

MESSAGE_CHARACTERS = 4096
TRACEBACK_CHARACTERS = 32 * 1024
REFUSAL_CHARACTERS = 300  # of a refused request: without an account nobody fills the log quickly
# Longer than any of our secrets, and read beyond the cut: a secret cut in two is still recognised.
_MARGIN = 1024

_SECRETS = (
    (re.compile(r"mst_[A-Za-z0-9_-]{6,}+"), "mst_[removed]"),
    (re.compile(r"(?i)\b(bearer|basic)\s{1,64}+[A-Za-z0-9._~+/=:-]{6,}+"), r"\1 [removed]"),
    (
        re.compile(
            r"(?i)(password|passwd|secret_key|secret|csrfmiddlewaretoken|csrftoken|sessionid|cookie|authorization)"
            r"""(["']?+\s{0,64}+[:=]\s{0,64}+["']?)[^\s"'&,;})\]]++"""
        ),
        r"\1\2[removed]",
    ),
    # No scheme in front: "://" is rare, and neither part behind it can reach the next one.
    (re.compile(r"(://[^\s:/@]*+):[^\s@/]++@"), r"\1:[removed]@"),
    # Values signed by Django.
    (re.compile(r"\beyJ[\w-]{8,}+(?:\.[\w-]++)*+|(?<![\w-])[\w-]{12,}+:[\w-]{6,7}+:[\w-]{40,}+"), "[removed]"),
)
_STEERING = re.compile(f"[{CONTROL}{REORDERING}]")


def redacted(text: str, *, most: int = MESSAGE_CHARACTERS) -> str:
    """Return the text without secrets, cut to about `most` characters."""
    length = len(text)
    if length <= most:
        return without_secrets(text)
    # The margin's end may hold the start of a secret that no pattern matches; it is not shown.
    return f"{without_secrets(text[: most + _MARGIN])[:-_MARGIN]} [cut; {length} characters]"


def without_secrets(text: str) -> str:
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def one_line(text: str) -> str:
    """Replace control characters with their escapes, so that received text cannot imitate a line of ours."""
    return _STEERING.sub(lambda found: repr(found.group())[1:-1], text)


# SQLSTATE classes whose messages contain values: data exceptions (22) and integrity violations (23).
_ABOUT_VALUES = ("22", "23")


def of_database(error: BaseException) -> str:
    """Return Postgres's error without its DETAIL and without any value: those hold commands, environments, names."""
    seen = error.__cause__ if isinstance(error, Error) else error
    state = str(getattr(seen, "sqlstate", None) or "")
    if not state:
        return str(error)
    about = getattr(seen, "diag", None)
    primary = "" if state.startswith(_ABOUT_VALUES) else getattr(about, "message_primary", None) or ""
    named = [getattr(about, f"{kind}_name", None) for kind in ("table", "column", "constraint")]
    return " ".join(filter(None, [type(seen).__name__, f"[{state}]", *named, primary]))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def _is_of_database(error: object) -> bool:
    return isinstance(error, Error) or hasattr(error, "sqlstate")


def without_values(record: logging.LogRecord) -> logging.LogRecord:
    """Return the record with database errors among the message's arguments replaced by value-free text."""
    args, error = record.args, record.exc_info[1] if record.exc_info else None
    if isinstance(args, dict) and "exc" in args and error:  # a failed task: Celery's own message format
        if any(map(_is_of_database, _chain(error))):
            record = copy(record)
            record.args = {**args, "exc": of_database(error) if _is_of_database(error) else type(error).__name__}
        return record
    if not isinstance(record.args, tuple) or not any(_is_of_database(one) for one in record.args):
        return record
    found = copy(record)
    found.args = tuple(
        of_database(one) if isinstance(one, BaseException) and _is_of_database(one) else one for one in record.args
    )
    return found


def is_refusal(record: logging.LogRecord) -> bool:
    status = getattr(record, "status_code", 500)
    return record.name.startswith("django.security") or (record.name == "django.request" and status < 500)


class Redacted(logging.Formatter):
    """Format a message as one line.

    A traceback keeps its lines, without secrets and without a failed statement's values.
    """

    def format(self, record: logging.LogRecord) -> str:
        record = without_values(record)
        if is_refusal(record):  # the client's error: where in our code it was noticed is of no use
            record = copy(record)
            record.exc_info = record.exc_text = None
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        most = REFUSAL_CHARACTERS if is_refusal(record) else MESSAGE_CHARACTERS
        record.message = one_line(redacted(record.message, most=most))
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        text = super().formatException(ei)
        for error in _chain(ei[1]):
            if _is_of_database(error) and (message := str(error)):
                text = text.replace(message, of_database(error))
        return redacted(text, most=TRACEBACK_CHARACTERS)

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return redacted(stack_info, most=TRACEBACK_CHARACTERS)
