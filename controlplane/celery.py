"""The tasks process: `celery -A controlplane.celery worker`, and beat beside it."""

import os
from typing import Any

from celery import Celery
from celery.signals import worker_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
app = Celery("muster")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@worker_init.connect
def _sweep(**_: Any) -> None:
    """Before Redis is asked for anything: the sweeper is what works without it."""
    from jobs import sweeper

    sweeper.start()
