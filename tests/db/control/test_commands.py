import pytest
from django.core.management import CommandError, call_command

from queues.models import Queue

pytestmark = pytest.mark.django_db


def test_a_queue_is_made_with_its_team_and_changed_afterwards(people):
    call_command("queue", "big", "--team", "speech", "--slots", "4", "--member", "owner")
    call_command("queue", "big", "--team", "speech", "--slots", "16")
    queue = Queue.objects.get(name="big")
    assert (queue.team.name, queue.nominal) == ("speech", 16)
    assert people.owner.memberships.filter(team=queue.team, role="member").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--slots", "0"], "at least 1"),
        (["--slots", "1", "--cluster", "moon"], "moon"),
        (["--slots", "1", "--member", "eve"], "eve"),
    ],
)
def test_an_invalid_queue_is_refused_with_the_reason(arguments, words):
    with pytest.raises(CommandError, match=words):
        call_command("queue", "x", "--team", "t", *arguments)
    assert not Queue.objects.exists()
