"""Empty pages say where the command line of this server comes from, as `pip install` takes it, and what leads on."""

import re
from html import unescape

import pytest

from accounts.models import Membership, Team
from common.client_wheel import wheel
from jobs.models import Job
from queues.models import Queue
from tests.conftest import make_user
from tests.support import seed

INSTALL = f"pip install http://testserver/client/{wheel().name}"


def nobody(people):
    return make_user("newcomer")


def admin(people):
    return people.admin


def viewer(people):
    return people.viewer


def boss(people):
    Membership.objects.filter(user=people.owner).update(role="admin")
    return people.owner


EMPTY = [
    # (page, user, has a queue, what the empty state says, the command that leads on)
    ("/jobs", boss, True, "No jobs yet", "muster submit --queue"),
    ("/jobs", viewer, True, "No jobs yet", "muster jobs"),
    ("/jobs", admin, False, "No queues yet", "muster queues create"),
    ("/jobs", nobody, True, "You cannot see any jobs yet", "muster me"),
    ("/jobs?q=absent", boss, True, "No job matches", "muster jobs"),
    ("/jobs/new", viewer, True, "You cannot submit jobs yet", "muster submit --queue"),
    ("/queues", admin, False, "No queues yet", "muster queues create"),
    ("/queues", nobody, True, "No queues yet", "muster queues"),
    ("/queues", viewer, True, "No jobs are using it", "muster submit --queue default -- COMMAND"),
    (
        "/teams/nlp/volumes",
        boss,
        True,
        "No volumes yet",
        "muster volumes create nlp NAME --cluster CLUSTER --size 512Gi",
    ),
    ("/teams/nlp/volumes", viewer, True, "No volumes yet", "muster volumes list nlp"),
    ("/teams/nlp/secrets", boss, True, "No secrets yet", "muster secrets create nlp NAME KEY"),
    ("/teams/nlp/secrets", viewer, True, "No secrets yet", "muster secrets list nlp"),
    ("/teams/nlp/webhooks", boss, True, "No webhooks yet", "muster webhooks create nlp NAME"),
    ("/teams/nlp/webhooks", viewer, True, "No webhooks yet", "muster webhooks list nlp"),
    ("/teams", nobody, True, "You are not in a team yet", "muster teams"),
    ("/account", nobody, True, "You are not in a team yet", "muster teams"),
    ("/teams/empty", admin, True, "No members yet", "muster teams members add empty USER"),
    ("/account/tokens", viewer, True, "None yet", "muster login"),
]


@pytest.mark.parametrize(("url", "user", "has_queue", "state", "command"), EMPTY)
def test_an_empty_page_says_how_to_go_on_from_a_terminal(as_, people, queue, url, user, has_queue, state, command):
    Team.objects.create(name="empty")
    if not has_queue:
        Queue.objects.all().delete()
    check(as_(user(people)).get(url).text, state, command)


def test_a_job_without_code_and_metrics_says_so_too(owner, lab):
    job = seed.queued(lab)
    assert Job.objects.get().workspace is None
    check(owner.get(f"/jobs/{job.pk}/code").text, "No code", "muster submit --queue QUEUE")
    check(owner.get(f"/jobs/{job.pk}").text, "No metrics reported yet", "import muster")


def test_a_filter_of_people_and_of_the_audit_needs_no_client(as_, people):
    for page in ("/people?q=absent", "/teams/nlp/audit?by=absent"):
        answer = as_(people.admin).get(page)
        assert answer.status_code == 200 and INSTALL not in answer.text


def check(page: str, *wanted: str) -> None:
    page = " ".join(unescape(re.sub(r"<[^>]+>", "", page)).split())
    assert [one for one in (INSTALL, *wanted) if one not in page] == []
