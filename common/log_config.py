"""The server's own log on standard error, for people; and on standard output its security events as JSON, for programs.

A log service of the machine or the cluster takes the second one to another system: one object a line, the same fields each time.
"""

import json
import logging
import time
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .redaction import one_line, redacted, without_values

EVENTS = "muster.events"
# Beside our own events: refused requests, forged forms and hosts, and who has to pause.
SOURCES = (EVENTS, "django.security", "django.request", "axes")
_TEXT_LENGTH = 2000


def configuration(*, level: str, events: str) -> dict[str, Any]:
    """For Django's LOGGING. `events`: off or stdout."""
    if events not in ("off", "stdout"):
        raise ImproperlyConfigured(f"MUSTER_EVENT_LOG is {events}; it must be off or stdout")
    line = {"()": "common.redaction.Redacted", "format": "%(asctime)s %(levelname)s %(name)s %(message)s"}
    stderr = {"class": "logging.StreamHandler", "formatter": "line", "level": level}
    stdout = {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stdout"}
    is_told = events == "stdout"
    ours = {"handlers": ["stdout"] if is_told else [], "level": "INFO"}
    sources = SOURCES if is_told else (EVENTS,)
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": line, "json": {"()": "common.log_config.AsJson"}},
        "handlers": {"stderr": stderr, "stdout": stdout},
        "root": {"handlers": ["stderr"], "level": level},
        # Our events are in the audit and need not stand in the log for people; the others stand in both.
        "loggers": {name: ours | {"propagate": name != EVENTS} for name in sources},
    }


def event(act: str, **fields: Any) -> None:
    """Something that the audit holds too; `fields` are plain values without secrets."""
    logging.getLogger(EVENTS).info(act, extra={"event": fields})


class AsJson(logging.Formatter):
    """One object a line. Secrets are taken out of every text, and a line's end is an escape."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields = {
            "at": at,
            "level": record.levelname,
            "source": record.name,
            "message": without_values(record).getMessage(),
        }
        if status := getattr(record, "status_code", None):
            fields["status"] = status
        return json.dumps(_clean({**fields, **getattr(record, "event", {})}), default=str)


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _clean(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(one) for one in value]
    return one_line(redacted(value, most=_TEXT_LENGTH)) if isinstance(value, str) else value
