"""Delete old logs and folders now: `manage.py collect --dry-run` lists them."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from jobs.logs.retention import collect


class Command(BaseCommand):
    help = "Delete logs older than MUSTER_LOG_DAYS and folders of local jobs older than MUSTER_JOB_DAYS."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only show what would be deleted")

    def handle(self, *args: Any, **options: Any) -> None:
        is_dry = options["dry_run"]
        found = collect(now=timezone.now(), is_dry=is_dry)
        verb = "would delete" if is_dry else "deleted"
        for what, names in (("log of", found.logs), ("folder", found.folders), ("file", found.files)):
            for name in names:
                self.stdout.write(f"{verb} {what} {name}")
        self.stdout.write(
            f"{verb} {len(found.logs)} logs, {len(found.folders)} folders, {len(found.files)} stray files"
        )
