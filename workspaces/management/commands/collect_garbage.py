"""`manage.py collect_garbage`: run the daily task's work at once."""

from typing import Any

from django.core.management.base import BaseCommand

from workspaces.garbage import collect


class Command(BaseCommand):
    help = "Remove workspaces of no job, files that no workspace names, and packs that are mostly dead."

    def handle(self, *args: Any, **options: Any) -> None:
        found = collect()
        self.stdout.write(
            f"removed {found.workspaces} workspaces and {found.blobs} files of them, rewrote {found.packs} packs, "
            f"deleted {found.stored_files} stored files"
        )
