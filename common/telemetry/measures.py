"""What a process counts and times for Prometheus, and where it serves that: a port of its own, apart from pages and API.

Labels never hold ids of jobs, people or replicas: each value of a label is a series of its own for good.
"""

import logging

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, start_http_server

from ..errors import MusterError

log = logging.getLogger(__name__)

_QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0, 7 * 24 * 3600.0)

requests = Histogram(
    "muster_http_request_seconds", "Requests to pages and API until the head of the answer.",
    ["method", "route", "status"], buckets=_QUICK,
)  # fmt: skip
streams = Gauge("muster_open_streams", "Open streams of hints and of logs.")
batches = Histogram(
    "muster_ingest_batch_seconds", "Batches of agents from the first byte to the answer.", ["status"], buckets=_QUICK
)
lag = Histogram(
    "muster_ingest_lag_seconds", "From the sending of a batch, by its agent's clock, until it is read.",
    buckets=(0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)  # fmt: skip
lost_hints = Counter(
    "muster_doorbell_failures",
    "Hints and wake-ups that Redis did not take (not_sent), or that were given up as too many waited (dropped).",
    ["reason"],
)
for _reason in ("not_sent", "dropped"):
    lost_hints.labels(_reason)  # report 0 from the start: no increase is seen of a series that begins at 1
overdue = Counter(
    "muster_overdue_visits",
    "Visits of the sweeper that changed a job's phase: no doorbell rang, or it was lost or late.",
)
waited = Histogram(
    "muster_queue_wait_seconds", "From submission, or the last resume, to admission.", ["team", "queue"], buckets=_LONG
)
started = Histogram(
    "muster_start_seconds", "From admission, or the retry, until every replica runs.", ["team", "queue"],
    buckets=_LONG[:7],
)  # fmt: skip
ended = Counter("muster_jobs_ended", "Jobs that ended, by their last phase.", ["team", "queue", "phase"])
visits = Histogram(
    "muster_reconcile_seconds",
    "Visits of the reconciler to a job; failed: by a defect, or without the database.",
    ["outcome"],
    buckets=_QUICK,
)
calls = Histogram(
    "muster_cluster_call_seconds", "Requests to Kubernetes, by what it answered; none: no answer.", ["verb", "status"],
    buckets=_QUICK,
)  # fmt: skip

deliveries = Counter(
    "muster_webhook_deliveries", "Requests to webhooks: delivered, failed (tried again later), or given up.", ["result"]
)
errors = Counter(
    "muster_errors",
    "Errors that ended an API call, a page, a request of a visit, or a task, by class; other: not raised on purpose.",
    ["where", "error"],
)


def failed(where: str, error: BaseException) -> None:
    """Count an error. `where`: api, page, visit or task; the class is the nearest one of common/errors.py."""
    ours = (one.__name__ for one in type(error).__mro__ if one.__module__ == MusterError.__module__)
    errors.labels(where, next(ours, "other")).inc()


def serve(where: str, *collectors: object) -> None:
    """Serve /metrics at "ADDRESS:PORT" from a thread of its own; nothing if `where` is empty.

    A port in use is logged: a process must not fail because of what only watches it.
    """
    if not where:
        return
    for one in collectors:
        REGISTRY.register(one)  # type: ignore[arg-type]  # anything with collect()
    address, _, port = where.rpartition(":")
    try:
        start_http_server(int(port), addr=address.strip("[]"))
    except OSError as error:
        log.error("no metrics at %s (MUSTER_METRICS): %s", where, error.strerror or error)
