"""The server's own log: no token, password or cookie gets into it, and no request can forge a line of it."""

import logging
import re
from typing import Any

_SECRETS = (
    (re.compile(r"mst_[A-Za-z0-9_-]{6,}"), "mst_[removed]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=:-]{6,}"), r"\1 [removed]"),
    (
        re.compile(
            r"(?i)(password|passwd|secret_key|secret|csrfmiddlewaretoken|csrftoken|sessionid|cookie|authorization)"
            r"""(["']?\s*[:=]\s*["']?)[^\s"'&,;})\]]+"""
        ),
        r"\1\2[removed]",
    ),
    (re.compile(r"(?i)([a-z][a-z0-9+.-]*://[^\s:/@]*):[^\s@/]+@"), r"\1:[removed]@"),
    (re.compile(r"\beyJ[\w-]{8,}(\.[\w-]+)*|\b[\w-]{12,}:[\w-]{6,7}:[\w-]{40,}"), "[removed]"),  # signed by Django
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def redacted(text: str) -> str:
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def one_line(text: str) -> str:
    """Control characters as their escapes: what somebody sent can not look like a line of ours."""
    return _CONTROL.sub(lambda found: repr(found.group())[1:-1], text)


class Redacted(logging.Formatter):
    """A message is one line. A traceback keeps its lines, without secrets."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = one_line(redacted(record.message))
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return redacted(super().formatException(ei))
