"""A job that begins from the checkpoints of another one: which it may name, and where its replicas find them."""

import pytest

from common.errors import InvalidSpec, Refused
from jobs.clusters.replica_file import start_variables
from jobs.control.store import plan_of
from jobs.core.plan import StartFrom
from jobs.models import Job
from queues.models import Queue
from tests.support.builders import Lab
from volumes.models import JobStorage

pytestmark = pytest.mark.django_db


def test_a_job_of_the_team_is_named_by_its_number_and_its_run_is_looked_up_at_each_launch(lab):
    first = lab.finish(lab.running(), 0, 0)
    second = lab.submit(from_job=first.pk, from_step=3000)
    plan = plan_of(second, 1)
    assert plan.start_from == StartFrom(first.run, 3000)
    assert start_variables(plan, "/muster/from") == {"MUSTER_FROM": "/muster/from", "MUSTER_FROM_STEP": "3000"}
    first.delete()
    with pytest.raises(Refused, match="whose checkpoints it begins from, was removed"):
        plan_of(second, 1)


def test_a_claim_with_checkpoints_of_its_own_is_mounted(lab, on_pods):
    first = lab.finish(lab.running(), 0, 0)
    JobStorage.objects.create(
        job=first.pk, run=first.run, job_name=first.name, kind="checkpoints", team=first.team, cluster=on_pods.cluster, size="1Gi",
    )  # fmt: skip
    assert plan_of(lab.submit(from_job=first.pk), 1).start_from == StartFrom(
        first.run, None, f"muster-job-{first.run}-checkpoints"
    )


@pytest.mark.parametrize("case", ["unknown", "theirs", "waiting", "elsewhere", "step alone"])
def test_jobs_that_it_cannot_begin_from(lab, people, settings, case):
    sent = {"from_job": 10**6}
    words = "is no job of team nlp; `muster jobs` lists them"
    if case == "theirs":
        team = people.stranger.memberships.get().team
        other = Lab(Queue.objects.create(name="theirs", team=team, cluster="local", nominal=8), people.stranger)
        sent = {"from_job": other.running().pk}
    elif case == "waiting":
        sent, words = {"from_job": lab.submit().pk}, "is queued and has not begun: it has no checkpoints"
    elif case == "elsewhere":
        settings.CLUSTERS = {**settings.CLUSTERS, "far": settings.CLUSTERS["local"]}
        job = lab.running()
        Job.objects.filter(pk=job.pk).update(
            queue=Queue.objects.create(name="far", team=job.team, cluster="far", nominal=8)
        )
        sent, words = {"from_job": job.pk}, "ran on cluster far, and queue default is on local; choose another queue"
    elif case == "step alone":
        sent, words = {"from_step": 3}, "needs from_job, the job that has this step; set it"
    with pytest.raises(InvalidSpec) as caught:
        lab.submit(**sent)
    assert [one.message for one in caught.value.problems] == [words]


def test_a_finished_job_s_page_leads_to_a_form_that_begins_from_it(client, lab):
    job = lab.finish(lab.running(), 0, 0)
    client.force_login(lab.user)
    page = client.get(f"/jobs/{job.pk}").text
    assert f"/jobs/new?from={job.pk}&amp;checkpoints=1" in page and "Resume from here" in page
    form = client.get(f"/jobs/new?from={job.pk}&checkpoints=1").text
    assert f'name="from_job" value="{job.pk}"' in form
