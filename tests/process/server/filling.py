"""Fills the database of the settings with people, a queue, and a running and a failed job with logs.

As a program it prints a token of the person who may do everything.
"""

import os

import django
from django.apps import apps

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
if not apps.ready:
    django.setup()

from django.utils import timezone

from accounts import people
from accounts.models import Membership, Role, Team, Token, User
from jobs.analysis import rollups
from queues.models import Queue
from tests.support import seed
from tests.support.builders import Lab


def fill() -> str:
    people.make_first(username="root")
    user = User.objects.get(username="root")
    user.last_login = timezone.now()
    user.save()
    team = Team.objects.create(name="vision")
    Membership.objects.create(team=team, user=user, role=Role.ADMIN)
    queue = Queue.objects.create(name="a100", team=team, cluster="memory", resource="gpu", nominal=16, gpus_per_node=8)
    lab = Lab(queue, user)
    seed.running(lab, name="goes-on", secrets={"TOKEN": "kept"})
    seed.failed(lab, name="failed", lines=["a\ttab", "back\\slash", "\\N", "ünïcode \u2603"])
    rollups.roll_up(now=timezone.now())
    return Token.issue(user, "tests", scope="manage")[1]


if __name__ == "__main__":
    print(fill())
