"""The watcher process: `manage.py watch`."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from common import gc_tuning
from jobs.control.watcher import watch


class Command(BaseCommand):
    help = "Follow the clusters and wake the jobs whose replicas changed."

    def handle(self, *args: Any, **options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        gc_tuning.settle()
        watch(stop)
