"""`manage.py team_store TEAM`: show what a team's code takes, and its own limits."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import Team
from workspaces.models import TeamStore, Workspace
from workspaces.services import used_bytes

DEFAULT = "default"


def limit(text: str) -> int | None:
    """Return bytes, or None for the installation's own limit."""
    if text == DEFAULT:
        return None
    if not text.isdecimal() or int(text) >= 1 << 63:
        raise CommandError(f"{text} is not a number of bytes; give a whole number, or {DEFAULT}")
    return int(text)


class Command(BaseCommand):
    help = "Show how much space a team's code takes, and change its limits."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("team")
        parser.add_argument(
            "--workspace-bytes", metavar="N", help=f"limit of one workspace, unpacked; {DEFAULT} restores the default"
        )
        parser.add_argument(
            "--store-bytes", metavar="N", help=f"limit of all stored files together; {DEFAULT} restores the default"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        team = Team.objects.filter(name=options["team"]).first()
        if team is None:
            known = ", ".join(Team.objects.order_by("name").values_list("name", flat=True)) or "none yet"
            raise CommandError(f"no team {options['team']}; there are {known}")
        store, _ = TeamStore.objects.get_or_create(team=team)
        asked = {"workspace_limit_bytes": options["workspace_bytes"], "store_limit_bytes": options["store_bytes"]}
        for field, text in asked.items():
            if text is not None:
                setattr(store, field, limit(text))
        store.save()
        self.stdout.write(_summary(team, store))


def _summary(team: Team, store: TeamStore) -> str:
    used = used_bytes(team)
    count = Workspace.objects.filter(team=team).count()
    return (
        f"team {team.name}: {count} workspaces in {used:,} of {store.store_limit:,} bytes; "
        f"one workspace has at most {store.workspace_limit:,} bytes"
    )
