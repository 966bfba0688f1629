"""`manage.py backfill_attempts`: rows of attempts that a release before them has launched."""

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from jobs.analysis.attempts import backfill
from jobs.models import Job

BATCH = 100  # jobs
REST_SECONDS = 0.05  # between two batches, for those who work meanwhile


class Command(BaseCommand):
    help = (
        "Write a row for each attempt that was launched before such rows existed. May run beside everything else, be cut "
        "off and be repeated."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--after", type=int, default=0, metavar="JOB", help="begin behind the job with this id")

    def handle(self, *args: Any, **options: Any) -> None:
        last, jobs, changed = options["after"], 0, 0
        while ids := list(
            Job.objects.filter(pk__gt=last, attempt__gt=0).order_by("pk").values_list("pk", flat=True)[:BATCH]
        ):
            changed += backfill(ids)
            jobs, last = jobs + len(ids), ids[-1]
            self.stdout.write(f"{jobs} jobs up to {last}")
            time.sleep(REST_SECONDS)
        self.stdout.write(f"done: {jobs} jobs, {changed} rows now point to their attempt")
