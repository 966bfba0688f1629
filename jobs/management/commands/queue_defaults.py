"""`manage.py queue_defaults QUEUE NAME=VALUE ...`: what the queue's jobs have unless they say otherwise."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from common.errors import InvalidSpec
from jobs import frameworks
from jobs.core.fields import FIELDS
from jobs.core.spec import parse
from queues.models import Queue
from queues.services import set_defaults

# What a job cannot take from its queue: its own name and command, and what is encrypted or given by a user each time.
NEVER = frozenset({"name", "command", "secrets", "env"})


def checked(name: str, value: str) -> Any:
    """Return the value as a job would have it. Raises CommandError for an unknown field or a wrong value."""
    theirs = [framework for framework, own in frameworks.OPTIONS.items() if name in own]
    if name in NEVER or not (name in FIELDS or theirs):
        known = sorted({*FIELDS, *(one for own in frameworks.OPTIONS.values() for one in own)} - NEVER)
        raise CommandError(f"{name} is not a field that a queue can give its jobs; known are {', '.join(known)}")
    sent = {"command": ["true"], **({"framework": theirs[0]} if theirs else {}), name: value}
    try:
        spec = parse(sent, options=frameworks.OPTIONS)
        frameworks.get(spec.framework)
    except InvalidSpec as error:
        mine = [problem for problem in error.problems if problem.field == name]
        if mine:
            raise CommandError(f"{name}: {mine[0]}") from error
        return value  # complete only together with other fields, such as retry_on with max_retries
    return spec.options[name] if theirs else getattr(spec, name, value)


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
            if value:
                defaults[name] = checked(name, value)
            else:
                defaults.pop(name, None)
        queue = set_defaults(queue=queue, by=None, defaults=defaults)
        defaults_text = ", ".join(f"{name}={value}" for name, value in sorted(queue.defaults.items())) or "none"
        self.stdout.write(f"defaults of queue {queue.name}: {defaults_text}")
