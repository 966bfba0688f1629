"""The tasks process: `celery -A controlplane.celery worker`, and beat beside it."""

import logging
import logging.config
import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging, task_failure, task_postrun, task_prerun, worker_init
from django.conf import settings

from common.http import request_ids
from common.signals.doorbell import CAUSE
from common.telemetry import measures, traces

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
app = Celery("muster", task_cls="controlplane.telemetry.traced:TracedTask")
app.set_default()  # for every thread: doorbells ring from one of their own
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


def _log_as_the_others_do(loglevel: int, **_: Any) -> None:
    """Configure logging like the other processes.

    Celery would install its own handlers in place of ours, which remove secrets and the values of failed statements.
    """
    logging.config.dictConfig(settings.LOGGING)
    logging.getLogger().setLevel(loglevel)


def _start_watching(**_: Any) -> None:
    from .telemetry import metrics  # models can be imported only now

    metrics.serve()
    traces.start("tasks")


def _note_cause(task: Any, **_: Any) -> None:
    # A worker puts a message's headers into the request itself; a task applied in place has them apart.
    found = task.request.get(CAUSE) or (task.request.get("headers") or {}).get(CAUSE)
    request_ids.current_id.set(str(found or ""))


def _forget_cause(**_: Any) -> None:
    request_ids.current_id.set("")


def _count_error(sender: Any, exception: BaseException, **_: Any) -> None:
    if sender.name != "jobs.reconcile":  # visits count their own, those of the sweeper as well
        measures.failed("task", exception)


setup_logging.connect(_log_as_the_others_do)
task_failure.connect(_count_error)
task_prerun.connect(_note_cause)
task_postrun.connect(_forget_cause)
worker_init.connect(_start_watching)
