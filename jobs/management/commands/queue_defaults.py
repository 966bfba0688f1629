"""`manage.py queue_defaults QUEUE NAME=VALUE ...`: what the queue's jobs have unless they say otherwise."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from common import yaml_input
from common.errors import InvalidInput
from jobs.submission.resolving import queue_defaults
from queues.models import Queue
from queues.services import set_template


class Command(BaseCommand):
    help = "Show and set the fields that a queue's jobs have unless they say otherwise."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("queue")
        parser.add_argument("defaults", nargs="*", metavar="NAME=VALUE", help="an empty value removes the default")

    def handle(self, *args: Any, **options: Any) -> None:
        queue = Queue.objects.select_related("team").filter(name=options["queue"]).first()
        if queue is None:
            known = ", ".join(Queue.objects.order_by("name").values_list("name", flat=True)) or "none yet"
            raise CommandError(f"no queue {options['queue']}; there are {known}")
        defaults = dict(queue.defaults)
        for word in options["defaults"]:
            name, equals, value = word.partition("=")
            if not equals:
                raise CommandError(f"{word}: give NAME=VALUE, such as mesh_launcher=MonarchMesh")
            try:
                defaults[name] = yaml_input.parse(value) if value.startswith(("{", "[")) else value
            except ValueError as error:
                raise CommandError(f"{name} {error}") from error
        try:
            queue = set_template(queue=queue, by=None, defaults=queue_defaults(queue, defaults))
        except InvalidInput as error:
            raise CommandError("; ".join(str(one).removeprefix("defaults.") for one in error.problems)) from error
        defaults_text = ", ".join(f"{name}={value}" for name, value in sorted(queue.defaults.items())) or "none"
        self.stdout.write(f"defaults of queue {queue.name}: {defaults_text}")
