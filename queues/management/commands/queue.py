"""Make a queue, and its team if missing: `manage.py queue default --team nlp --slots 8`."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.models import Membership, Role, Team, User
from common.errors import InvalidInput
from queues import clusters, sharing
from queues.models import Queue, Resource
from queues.services import change, make


class Command(BaseCommand):
    help = "Create a queue for a team, or change an existing queue's quota."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--team", required=True)
        parser.add_argument("--slots", type=int, required=True, help="how many processes may run at once")
        parser.add_argument("--cluster", default=next(iter(clusters.names()), None))
        parser.add_argument("--resource", choices=Resource.values, default=Resource.CPU)
        parser.add_argument("--member", action="append", default=[], help="user who may submit; may be repeated")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["slots"] < 1:
            raise CommandError(f"--slots must be at least 1, not {options['slots']}")
        if not clusters.names():
            raise CommandError("this installation has no cluster: set MUSTER_CLUSTERS (docs/kubernetes.md)")
        if not clusters.is_known(options["cluster"]):
            raise CommandError(f"--cluster {options['cluster']} is not one of {', '.join(clusters.names())}")
        team, _ = Team.objects.get_or_create(name=options["team"])
        for name in options["member"]:
            self._add_member(team, name)
        queue = self._set(options)
        if sharing.has_others(queue):
            self.stderr.write(f"queue {queue.name}: {sharing.NOTICE}")
        self.stdout.write(f"queue {queue.name} of team {queue.team}: {queue.nominal} {queue.get_resource_display()}")

    def _set(self, options: dict[str, Any]) -> Queue:
        queue = Queue.objects.filter(name=options["name"]).first()
        place = {"cluster": options["cluster"], "resource": options["resource"]}
        try:
            if queue is None:
                return make(by=None, name=options["name"], team=options["team"], slots=options["slots"], **place)
            Queue.objects.filter(pk=queue.pk).update(**place)
            return change(queue=queue, by=None, slots=options["slots"])
        except InvalidInput as error:
            raise CommandError(str(error)) from error

    def _add_member(self, team: Team, name: str) -> None:
        user = User.objects.filter(username=name).first()
        if user is None:
            raise CommandError(f"--member {name}: there is no such user; create one with manage.py person")
        Membership.objects.get_or_create(user=user, team=team, defaults={"role": Role.MEMBER})
