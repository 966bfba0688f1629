"""/queues"""

import re

from jobs.scheduling.scheduler import schedule
from jobs.web.queues import usages
from queues import cohorts, services
from queues.models import Queue
from tests.support import seed


def test_a_queue_shows_its_use_its_jobs_and_what_waits(owner, lab):
    holder = lab.running(nodes=2, nproc_per_node=4)
    seed.queued(lab)
    page = owner.get("/queues").text
    assert "8 of 8" in page
    assert holder.name in page
    assert "1 job</a> waits for 4 CPU slots" in page


def test_the_bar_is_divided_in_proportion_to_the_slots(lab, queue):
    lab.running(nodes=1, nproc_per_node=4)
    lab.running(nodes=1, nproc_per_node=2)
    [usage] = usages([queue])
    assert [(share.x, share.width) for share in usage.shares] == [(0, 50), (50, 25)]


def test_the_query_count_does_not_depend_on_the_number_of_queues(owner, team, queue, django_assert_num_queries):
    with django_assert_num_queries(8):
        owner.get("/queues")
    for number in range(5):
        Queue.objects.create(name=f"queue-{number}", team=team, cluster="local", nominal=4)
    with django_assert_num_queries(8):
        owner.get("/queues")


def test_the_cluster_of_a_queue_is_linked_for_those_who_may_see_its_nodes(as_, people, queue):
    link = 'href="/clusters/local"'
    assert link in as_(people.owner).get("/queues").text and link in as_(people.admin).get("/queues").text
    assert link not in as_(people.viewer).get("/queues").text


def test_a_quota_lowered_below_its_use_does_not_overflow_the_bar(lab, queue):
    lab.running(nodes=2, nproc_per_node=4)
    Queue.objects.filter(pk=queue.pk).update(nominal=4)
    queue.refresh_from_db()
    [usage] = usages([queue])
    assert usage.free == 0
    assert sum(share.width for share in usage.shares) == 100


def test_members_see_who_waits_in_which_order_and_what_runs(as_, people, lab):
    running = seed.running(lab, nodes=2, per_node=4, steps=2, name="holds-all")
    first, second = lab.submit(name="older"), lab.submit(name="newer", priority=5)
    schedule()
    page = as_(people.viewer).get("/queues/default").text
    names = re.findall(r'<td class="num c-extra">(\d)</td><td class="c-main"><a href="/jobs/(\d+)">', page)
    assert names == [("1", str(second.pk)), ("2", str(first.pk))], "a higher priority first"
    assert f'<a href="/jobs/{second.pk}">job {second.pk}</a> is first' in page
    assert running.name in page and "2 waiting" in page
    assert "Administrators of team nlp can change this queue." in page and 'name="slots"' not in page


def test_strangers_do_not_see_a_queue(as_, people, queue):
    assert as_(people.stranger).get("/queues/default").status_code == 404
    assert as_(people.viewer).post("/queues/default", {"slots": "9"}).status_code == 403


def test_only_who_may_submit_is_offered_to(as_, people, owner, queue):
    assert "Submit one" in owner.get(f"/queues/{queue.name}").text
    page = as_(people.viewer).get(f"/queues/{queue.name}").text
    assert "No job holds any of it." in page and "Submit one" not in page


def test_what_the_team_shares_is_shown_and_what_the_queue_may_borrow_is_set(as_, people, lab):
    page = f"/queues/{lab.queue.name}"
    assert "Shared quota" not in as_(people.admin).get(page).text
    cohorts.make_flavor(by=None, name="slots", cluster=lab.queue.cluster, resource="cpu")
    cohorts.set_cohort(by=None, name="research")
    cohorts.set_quota(by=None, team=lab.queue.team, flavor="slots", nominal=12, cohort="research", lending_limit=4)
    services.change(queue=lab.queue, by=None, flavor="slots")
    lab.running(nodes=2, nproc_per_node=2)
    shown = as_(people.admin).get(page).text
    assert "Shared quota of slots" in shown and "cohort research" in shown and "muster quota set nlp slots" in shown
    sent = {"slots": 8, "gpus_per_node": 0, "is_open": "on", "description": "", "policy": "strict", "preempts": "on"}
    saved = as_(people.admin).post(page, {**sent, "borrowing_limit": ""})
    assert saved.status_code == 302, saved.text
    lab.queue.refresh_from_db()
    assert (lab.queue.preempts, lab.queue.borrowing_limit) == (True, None)
    refused = as_(people.admin).post(page, {**sent, "slots": 13, "borrowing_limit": "4"})
    assert refused.status_code == 422 and "at most 12 here" in refused.text
