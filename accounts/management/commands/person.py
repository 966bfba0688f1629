"""Make or deactivate a person: `manage.py person ada --team nlp --role member`, `manage.py person ada --deactivate`.

For a forgotten password: `manage.py person ada --new-password`.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts import people
from accounts.models import Role, Team
from common.errors import Conflict, InvalidInput
from common.signals import doorbell


class Command(BaseCommand):
    help = "Create a person with an initial password, or deactivate or activate one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--team", help="make the person a member of this team")
        parser.add_argument("--role", choices=Role.values, default=Role.MEMBER)
        state = parser.add_mutually_exclusive_group()
        state.add_argument(
            "--deactivate", action="store_true", help="suspend sessions and tokens until --activate; jobs stay"
        )
        state.add_argument("--activate", action="store_true")
        state.add_argument(
            "--remove-second-factor", action="store_true", help="for a person who lost it and the recovery codes"
        )
        state.add_argument(
            "--new-password", action="store_true", help="for a person who forgot it; ends their sessions"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            message = self._act(**options)
            doorbell.drain()  # so that this person's open streams end at once
            self.stdout.write(message)
        except (InvalidInput, Conflict) as error:
            raise CommandError(str(error)) from error

    def _act(self, username: str, **options: Any) -> str:
        if options["new_password"]:
            return _password_message(username, people.give_password(username=username))
        if options["remove_second_factor"]:
            was = people.remove_second_factor(username=username)
            return f"{username} signs in with a password only" if was else f"{username} had no second factor"
        return self._set(username, **options)

    def _set(
        self, username: str, team: str | None, role: str, *, activate: bool, deactivate: bool, **others: Any
    ) -> str:
        if activate or deactivate:
            people.set_active(username=username, is_active=activate)
            return f"{username} is {'active' if activate else 'deactivated'}"
        where = Team.objects.filter(name=team).first()
        if team and where is None:
            raise CommandError(f"--team {team}: there is no such team")
        _, password = people.make(username=username, team=where, role=role)
        return _password_message(username, password)


def _password_message(username: str, password: str) -> str:
    return f"{username} may sign in with {password} within {people.FIRST_PASSWORD.days} days and must then choose a new password"
