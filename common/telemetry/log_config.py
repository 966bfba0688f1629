"""Configure the server's log: text for people, or JSON, on stderr; security events as JSON for programs on stdout.

The machine's or the cluster's log service can ship JSON elsewhere: one object per line, always the same fields. Each line
has the id of the request that caused it (request_ids.py).
"""

import json
import logging
import time
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from . import traces
from .redaction import Redacted, is_refusal, one_line, redacted, without_values

EVENTS = "muster.events"
# Besides our own events: refused requests, CSRF failures and bad hosts, and lockouts.
SOURCES = (EVENTS, "django.security", "django.request", "axes")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
CELERY_WITH_RETRIES = ("consumer.consumer", "loops", "request")
_TEXT_LENGTH = 2000


def configuration(*, level: str, events: str, style: str = "text") -> dict[str, Any]:
    """Return the value of Django's LOGGING. `events`: off or stdout; `style`: text or json.

    Raises ImproperlyConfigured, which names the setting. Loggers that are not named here write to the same handlers, also
    uvicorn's, which gets no configuration of its own (controlplane/operations/processes.py).
    """
    if level.upper() not in LEVELS:
        known = ", ".join(LEVELS).lower()
        raise ImproperlyConfigured(f"MUSTER_LOG_LEVEL is {level[:40]}; it must be one of {known}")
    level = level.upper()
    if events not in ("off", "stdout"):
        raise ImproperlyConfigured(f"MUSTER_EVENT_LOG is {events}; it must be off or stdout")
    if style not in ("text", "json"):
        raise ImproperlyConfigured(f"MUSTER_LOG_FORMAT is {style}; it must be text or json")
    text = {
        "()": "common.telemetry.redaction.Redacted",
        "format": "%(asctime)s %(levelname)s %(name)s %(caused_by)s%(message)s",
        "defaults": {"caused_by": ""},
    }
    both = {"class": "logging.StreamHandler", "filters": ["request"]}
    stderr = {**both, "formatter": style, "level": level}
    stdout = {**both, "formatter": "event", "stream": "ext://sys.stdout"}
    is_on = events == "stdout"
    ours = {"handlers": ["stdout"] if is_on else [], "level": "INFO"}
    sources = SOURCES if is_on else (EVENTS,)
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {
            "request": {"()": "common.http.request_ids.WithRequestId"},
            "retries": {"()": "common.signals.redis_trouble.WithoutRetries"},
        },
        "formatters": {
            "text": text,
            "json": {"()": "common.telemetry.log_config.AsJson", "with_traceback": True},
            "event": {"()": "common.telemetry.log_config.AsJson"},
        },
        "handlers": {"stderr": stderr, "stdout": stdout},
        "root": {"handlers": ["stderr"], "level": level},
        # Our events are in the audit and need not be in the log for people; the others go to both. httpx names the URL of
        # each request at INFO: those of webhooks are secrets.
        "loggers": {
            **{name: {"level": "WARNING"} for name in ("httpx", "httpcore")},
            **{f"celery.worker.{name}": {"filters": ["retries"]} for name in CELERY_WITH_RETRIES},
            **{name: ours | {"propagate": name != EVENTS} for name in sources},
        },
    }


def event(act: str, **fields: Any) -> None:
    """Log an event that the audit also holds; `fields` are plain values without secrets."""
    logging.getLogger(EVENTS).info(act, extra={"event": fields})


class AsJson(logging.Formatter):
    """Format a record as one JSON object per line. Secrets are removed from every text, and line ends are escaped."""

    def __init__(self, *, with_traceback: bool = False) -> None:
        super().__init__()
        self.with_traceback = with_traceback

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields = {
            "at": at,
            "level": record.levelname,
            "source": record.name,
            "message": without_values(record).getMessage(),
        }
        if request := getattr(record, "request_id", ""):
            fields["request"] = request
        if trace := traces.trace_id():
            fields["trace_id"] = trace
        if status := getattr(record, "status_code", None):
            fields["status"] = status
        found = _clean({**fields, **getattr(record, "event", {})})
        if self.with_traceback and record.exc_info and not is_refusal(record):
            found["traceback"] = [one_line(line) for line in Redacted().formatException(record.exc_info).split("\n")]
        return json.dumps(found, default=str)


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _clean(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(one) for one in value]
    return one_line(redacted(value, most=_TEXT_LENGTH)) if isinstance(value, str) else value
