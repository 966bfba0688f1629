"""A receiver on loopback, the team's administrator, and webhooks that lead there."""

from ipaddress import ip_network

import pytest
from django.utils import timezone

from accounts.models import Membership, Role, User
from jobs.models import Delivery, Webhook
from jobs.webhooks import sending, services
from tests.conftest import make_user
from tests.support import receiver as receivers
from tests.support.receiver import Receiver


@pytest.fixture
def lab(lab):
    """The clock of its jobs moves on with each visit, and deliveries must be due by the real one."""
    lab.clock.advance(-120)
    return lab


@pytest.fixture
def receiver(settings):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    with receivers.receiver() as found:
        yield found


@pytest.fixture
def boss(team, people) -> User:
    user = make_user("boss")
    Membership.objects.create(user=user, team=team, role=Role.ADMIN)
    return user


@pytest.fixture
def hook(team, boss, receiver: Receiver):
    """`hook("chat", events=["end"])` makes a webhook; its secret is `hook.secrets["chat"]`."""

    def make(name: str = "chat", **values) -> Webhook:
        asked = {"url": receiver.url, "events": ["start", "end", "failure"], **values}
        webhook, make.secrets[name] = services.create(team=team, by=boss, name=name, **asked)
        return webhook

    make.secrets = {}
    return make


@pytest.fixture
def deliver():
    """Send everything that is due, in this thread, and return how many were sent."""

    def run(now=None) -> int:
        count = 0
        while hooks := sending.due(now or timezone.now(), most=100):
            for webhook in hooks:
                sending.deliver(sending.claim(webhook, now=now or timezone.now()))
                count += 1
        return count

    return run


def told(job) -> list[tuple[str, int]]:
    """The events that a job's deliveries tell of, in order."""
    return list(Delivery.objects.filter(job=job).order_by("id").values_list("event", "attempt"))
