"""One line for each job: what it shows, how lines are ordered and chosen, and what an open list is sent."""

import re

import pytest
from django.utils import timezone

from jobs import services
from jobs.ingest import apply
from jobs.models import Job
from jobs.templatetags.muster import linked
from jobs.web import listing
from tests.support import seed
from tests.support.builders import batch, identity, item

pytestmark = pytest.mark.django_db


def shown(owner, query: str = "") -> list[str]:
    """The names in the list, from top to bottom."""
    return re.findall(r'<a class="cover"[^>]*>([^<]+)</a>', owner.get(f"/jobs{query}").text)


def row(owner, job: Job) -> str:
    found = re.search(rf'<tr id="job-{job.pk}".*?</tr>', owner.get("/jobs").text, re.S)
    assert found
    return " ".join(re.sub(r"<[^>]+>", " ", found[0]).split())


def test_a_running_job_shows_its_newest_loss_and_how_far_it_is(owner, lab):
    job = seed.running(lab, steps=3)
    now = timezone.now().timestamp()
    points = [[now - 10 + n, 100 + n, {"loss": 2.5 - n / 10, "total_steps": 1000}] for n in range(11)]
    apply.apply_batch(identity=identity(job), batch=batch(2, item("metrics", rank=0, points=points)))
    assert "loss 1.5 · 11 %, about 14 min 50 s left" in row(owner, job)
    assert "every replica runs" not in row(owner, job)


def test_a_job_whose_loss_is_not_finite_says_so_while_it_runs_and_afterwards(owner, lab):
    job = seed.running(lab, steps=3)
    now = timezone.now().timestamp()
    points = [[now - 10 + n, 18 + n, {"loss": 0.5 if n < 2 else None}] for n in range(5)]
    apply.apply_batch(identity=identity(job), batch=batch(2, item("metrics", rank=0, points=points)))
    assert "loss is NaN since step 20" in row(owner, job)
    page = owner.get(f"/jobs/{job.pk}").text
    assert "1 rank needs a look" in page and "loss is NaN since step 20" in page
    assert 'data-now="NaN since step 20"' in page
    lab.finish(job, 0)
    assert "loss is NaN since step 20" in row(owner, job)
    assert "loss is NaN since step 20" in owner.get(f"/jobs/{job.pk}").text


def test_a_failed_job_shows_its_error_and_for_how_long_it_ran(owner, lab):
    job = seed.failed(lab)
    assert "rank 1 · device memory · " in row(owner, job) and "CUDA out of memory" in row(owner, job)
    Job.objects.filter(pk=job.pk).update(
        running_at=job.finished_at - timezone.timedelta(minutes=7),
        created_at=job.finished_at - timezone.timedelta(hours=1),
    )
    job.events.filter(phase="admitted").update(at=job.finished_at - timezone.timedelta(minutes=8))
    assert "7 min 00 s 52 min 00 s" in row(owner, job), "ran, and waited"


def test_gpus_in_use_and_idle_ones_are_shown(owner, lab):
    job = seed.running(lab, steps=2)
    for rank, gpu in enumerate((0.98, 0.9, 0.01, 0.91)):
        job.ranks.filter(rank=rank).update(gpu=gpu)
    assert "70 % , 1 idle" in row(owner, job)


@pytest.mark.parametrize("text", ["{}", "#{}"])
def test_a_job_is_found_by_its_id(owner, lab, text):
    jobs = [lab.submit(name=f"run-{number}") for number in "abc"]
    assert shown(owner, "?q=" + text.format(jobs[1].pk).replace("#", "%23")) == [jobs[1].name]


def test_the_list_is_ordered_by_what_the_address_says(owner, lab, monkeypatch):
    monkeypatch.setattr(listing, "PAGE", 2)
    for name in ("b", "c", "a"):
        lab.submit(name=name)
    assert shown(owner, "?sort=name") == ["a", "b"]
    assert shown(owner, "?sort=name&page=2") == ["c"]
    assert shown(owner, "?sort=oldest") == ["b", "c"]
    assert shown(owner, "?sort=nothing") == ["a", "c"]
    page = owner.get("/jobs?sort=name").text
    assert 'href="?sort=name&amp;page=2"' in page and re.search(r'href="\?sort=name" aria-current="true"', page)


def test_filters_by_state_team_user_and_time(owner, lab, people):
    job, old = lab.submit(name="new"), lab.submit(name="old")
    Job.objects.filter(pk=old.pk).update(created_at=timezone.now() - timezone.timedelta(days=2))
    assert shown(owner, "?since=24h") == ["new"]
    assert shown(owner, f"?user={people.owner.username}&team={job.team.name}&phase=queued") == ["old", "new"]
    assert shown(owner, "?user=nobody") == shown(owner, "?phase=failed") == []
    assert '<option value="failed" selected>failed</option>' in owner.get("/jobs?phase=failed").text
    page = owner.get("/jobs?since=24h").text
    assert '<details class="more" id="more-filters" open>' in page


def test_reasons_link_the_jobs_that_they_name():
    assert linked("2 ahead in queue a; job 12 is first") == '2 ahead in queue a; <a href="/jobs/12">job 12</a> is first'
    assert linked("<b>job 0 job 7x") == "&lt;b&gt;job 0 job 7x"


# -- what an open list is sent


def refreshed(owner, known: dict[int, str], query: str = ""):
    rows = ",".join(f"{number}={version}" for number, version in known.items())
    return owner.get(f"/jobs{query}", HTTP_HX_REQUEST="true", HTTP_HX_TARGET="section#jobs", HTTP_MUSTER_ROWS=rows)


def known(owner) -> dict[int, str]:
    found = re.findall(r'<tr id="job-(\d+)" data-v="(\w+)">', owner.get("/jobs").text)
    return {int(number): version for number, version in found}


def test_an_open_list_is_sent_only_the_rows_that_changed(owner, lab, people):
    jobs = [lab.submit(name=f"run-{number}") for number in "abc"]
    before = known(owner)
    assert list(before) == [job.pk for job in reversed(jobs)]
    assert refreshed(owner, before).status_code == 204
    services.suspend(job=jobs[1], by=people.owner)
    lab.visit(jobs[1])
    answer = refreshed(owner, before)
    assert re.findall(r'hx-target="#job-(\d+)"', answer.text) == [str(jobs[1].pk)]
    assert "Suspended" in answer.text and len(answer.content) < 2500
    assert "<table" not in answer.text


def test_an_open_list_is_sent_as_a_whole_when_a_job_came(owner, lab):
    lab.submit(name="first")
    before = known(owner)
    lab.submit(name="second")
    assert refreshed(owner, before).text.startswith('<section id="jobs"')


@pytest.mark.parametrize("said", ["", "x", "1=", "=,=", "9" * 5000])
def test_an_unreadable_list_of_rows_gets_the_whole_list(owner, lab, said):
    lab.submit()
    answer = owner.get("/jobs", HTTP_HX_REQUEST="true", HTTP_HX_TARGET="jobs", HTTP_MUSTER_ROWS=said)
    assert answer.text.startswith('<section id="jobs"')


# -- several at once


def act(owner, verb: str, jobs, **more):
    return owner.post(
        "/jobs/bulk", {"act": verb, "job": [job.pk for job in jobs], "back": "/jobs?mine=1", **more}, follow=True
    )


def test_the_chosen_jobs_are_suspended_resumed_submitted_again_and_cancelled(owner, lab):
    jobs = [lab.submit(name=f"run-{number}") for number in "ab"]
    assert "Suspended: 2 jobs." in act(owner, "suspend", jobs).text
    assert Job.objects.filter(suspended=True).count() == 2
    assert "Resumed: 2 jobs." in act(owner, "resume", jobs).text
    assert "Resubmitted: 2 jobs." in act(owner, "resubmit", jobs).text
    answer = act(owner, "cancel", jobs)
    assert answer.redirect_chain == [("/jobs?mine=1", 302)] and "Cancelled: 2 jobs." in answer.text
    assert Job.objects.filter(cancel_requested_at=None).count() == 2


def test_what_is_refused_is_said_and_the_others_are_done(as_, people, owner, lab):
    done = lab.finish(seed.running(lab, name="over", steps=2), 0, 0)
    going = lab.submit(name="going")
    text = act(owner, "suspend", [done, going]).text
    assert "Suspended: 1 job." in text and "over: " in text
    text = act(as_(people.viewer), "cancel", [going]).text
    assert "going: " in text and not Job.objects.get(pk=going.pk).cancel_requested_at


def test_jobs_of_other_teams_are_not_touched(as_, people, lab):
    job = lab.submit(name="mine")
    act(as_(people.stranger), "cancel", [job])
    assert Job.objects.get(pk=job.pk).cancel_requested_at is None


@pytest.mark.parametrize(
    "back", ["https://evil.example/jobs", "//evil.example", "/accounts", "/jobs\\@evil.example", ""]
)
def test_it_leads_back_to_the_list_and_nowhere_else(owner, back):
    answer = owner.post("/jobs/bulk", {"act": "cancel", "job": ["1"], "back": back})
    assert answer.url == "/jobs" or (answer.url.startswith("/jobs") and back.startswith("/jobs"))


@pytest.mark.parametrize("sent", [{"act": "delete", "job": "1"}, {"job": "1"}])
def test_an_unknown_act_is_a_bad_request(owner, sent):
    assert owner.post("/jobs/bulk", sent).status_code == 400
