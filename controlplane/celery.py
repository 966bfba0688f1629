"""The tasks process: `celery -A controlplane.celery worker`, and beat beside it."""

import logging
import logging.config
import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
app = Celery("muster")
app.set_default()  # for every thread: doorbells ring from one of their own
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


def _log_as_the_others_do(loglevel: int, **_: Any) -> None:
    """Configure logging like the other processes.

    Celery would install its own handlers in place of ours, which remove secrets and the values of failed statements.
    """
    logging.config.dictConfig(settings.LOGGING)
    logging.getLogger().setLevel(loglevel)


setup_logging.connect(_log_as_the_others_do)
