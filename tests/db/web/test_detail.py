"""/jobs/<id> and its actions."""

import re

import pytest
from django.utils import timezone

from jobs import services
from jobs.ingest import apply
from jobs.models import Job, JobEvent, Rank
from jobs.scheduling.scheduler import schedule
from tests.support import seed
from tests.support.builders import batch, identity, item, log_item

LIVE = re.compile(r'hx-trigger="[^"]*(from:body|every)')


@pytest.fixture
def failed(lab):
    return seed.failed(lab, steps=20)


def test_a_running_job_shows_every_rank_with_its_step(owner, job):
    page = owner.get(f"/jobs/{job.pk}").text
    assert page.count('class="cell run"') == 4
    assert "local 1" in page
    assert "loss" in page


def test_reasons_of_replicas_are_shown_with_their_nodes(owner, lab, job):
    said = "out of memory: it used more than its limit of <64Gi>"
    job.replicas.update(reason=said, node="gpu-node-7")
    page = owner.get(f"/jobs/{job.pk}").text
    assert "worker-0 and 1 more on gpu-node-7" in page
    assert "limit of &lt;64Gi&gt;" in page and page.count("gpu-node-7") >= 3, "and with each row"
    assert job.replicas.first().name in page


def test_a_replaced_replica_is_in_the_history_and_ranks_show_their_rank_in_torchrun(owner, lab):
    job = lab.running(min_nodes=1)
    lab.cluster.lose(job.run, 1, "worker", index=1)
    lab.visit(job, times=3)
    job.ranks.filter(rank=3).update(world_rank=1, world_size=4)
    page = owner.get(f"/jobs/{job.pk}?view=list").text
    assert "elastic, 1 to 2 nodes" in page
    assert "<b>Replaced</b>" in page
    assert "worker-1 vanished: its process or pod is gone; it is restarted within the attempt" in page
    assert "1 of 4" in page
    assert 'title="Rank number that torchrun uses now' not in owner.get(f"/jobs/{lab.running().pk}?view=list").text


def test_the_parts_of_a_live_job_listen_for_their_hints(owner, job):
    page = owner.get(f"/jobs/{job.pk}").text
    for what in ("state", "ranks", "metrics", "logs"):
        assert f"job-{job.pk}-{what} from:body" in page


def test_a_finished_job_says_when_it_is_removed(owner, lab):
    job = lab.finish(lab.running(ttl_seconds=7200), 0, 0)
    assert job.removal.startswith("removed 2 h after its end, ") and f"at {job.removal_at:%H:%M} UTC" in job.removal
    assert f"<span>{job.removal}</span>" in owner.get(f"/jobs/{job.pk}").text


def test_a_finished_job_requests_no_updates(owner, failed):
    assert not LIVE.search(owner.get(f"/jobs/{failed.pk}").text)
    assert not LIVE.search(owner.get(f"/jobs/{failed.pk}/logs").text)


@pytest.mark.parametrize("part", ["state", "ranks", "charts", "log", "events"])
def test_each_part_can_be_fetched_separately(owner, job, htmx, part):
    answer = htmx(owner, f"/jobs/{job.pk}", part)
    assert re.match(rf'<section id="{part}"', answer.text)
    assert "HX-Target" in answer["Vary"]
    assert "no-store" in answer["Cache-Control"]


def test_the_step_in_the_head_is_updated_with_the_ranks(owner, job, htmx):
    part = htmx(owner, f"/jobs/{job.pk}", "ranks").text
    step = re.search(r'<span id="head-step" hx-swap-oob="true">step <b class="num">(\d+)</b>', part)
    page = owner.get(f"/jobs/{job.pk}").text
    assert step
    assert page.count('id="head-step"') == 1
    assert f'<span id="head-step">step <b class="num">{step[1]}</b>' in page


def test_a_failed_job_shows_the_rank_its_exit_and_its_traceback(owner, failed):
    page = owner.get(f"/jobs/{failed.pk}").text
    assert "Why it failed" in page
    assert "Rank 1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB." in page
    assert "device memory" in page and "rank 1 exited with code 1, on worker-0" in page
    assert "<b>  File &quot;train.py&quot;, line 88, in step</b>" in page, "own frames are bold"
    assert f"/jobs/{failed.pk}/logs?rank=1" in page


def test_ranks_stopped_by_the_launcher_are_not_shown_as_failed(owner, failed):
    page = owner.get(f"/jobs/{failed.pk}").text
    assert page.count('class="cell bad') == 1
    assert page.count('class="cell idle"') == 3


def test_a_waiting_job_shows_the_reason_and_a_link_to_its_queue(owner, lab):
    seed.running(lab, nodes=2, per_node=4, steps=2)
    waiting = seed.queued(lab)
    page = owner.get(f"/jobs/{waiting.pk}").text
    assert "Why it is waiting" in page
    assert "/queues#queue-default" in page


def test_a_late_rank_is_marked_by_shape_and_word(owner, lab):
    job = seed.running(lab, steps=120, late=2)
    page = owner.get(f"/jobs/{job.pk}").text
    assert "Rank 2 is 40 steps behind the others" in page
    assert page.count('class="cell warn"') == 1


def test_a_rank_that_never_reported_is_not_shown_as_waiting_after_the_end(owner, lab):
    job = lab.finish(lab.running(), 0, 0)
    page = owner.get(f"/jobs/{job.pk}").text
    assert "Not seen" in page or "not seen" in page
    assert 'class="cell wait"' not in page


def test_the_list_view_is_a_table_of_the_same_ranks(owner, job):
    page = owner.get(f"/jobs/{job.pk}?view=list").text
    assert 'class="list ranks"' in page
    assert page.count("Running</span>") >= 4


def test_an_earlier_attempt_can_be_viewed_and_is_not_live(owner, lab, htmx):
    job = lab.visit(seed.failed(lab, steps=10, max_retries=1), times=4)
    assert job.attempt == 2
    page = owner.get(f"/jobs/{job.pk}").text
    assert "Attempt 1 ended: rank 1: torch.OutOfMemoryError: CUDA out of memory" in page
    assert not LIVE.search(htmx(owner, f"/jobs/{job.pk}?attempt=1", "ranks").text)
    assert 'class="cell bad first"' in htmx(owner, f"/jobs/{job.pk}?attempt=1", "ranks").text


def test_an_earlier_attempt_shows_its_own_verdict_step_and_log(owner, lab):
    job = lab.visit(seed.failed(lab, steps=10, rank=1, max_retries=1), times=4)
    now = timezone.now().timestamp()
    apply.apply_batch(identity=identity(job), batch=batch(1, log_item(0, 0, [(now, "of the second attempt")])))
    Rank.objects.filter(job=job, attempt=2, rank=0).update(step=3)
    first, second = owner.get(f"/jobs/{job.pk}?attempt=1").text, owner.get(f"/jobs/{job.pk}").text
    assert 'class="card verdict bad"' in first and "torch.OutOfMemoryError" in first
    assert 'class="card verdict bad"' not in second
    assert '<span id="head-step">step <b class="num">10</b>' in first
    assert '<span id="head-step">step <b class="num">3</b>' in second
    assert "of the second attempt" in second and "of the second attempt" not in first
    assert "Attempt 1 ended:" in second and "Attempt 1 ended:" not in first


def test_all_log_links_of_an_earlier_attempt_stay_in_that_attempt(owner, lab):
    lab.queue.nominal = 72
    lab.queue.save()
    job = lab.visit(seed.failed(lab, steps=2, rank=1, nodes=9, per_node=8, max_retries=1), times=4)
    for view in ("", "&view=list"):
        page = owner.get(f"/jobs/{job.pk}?attempt=1{view}").text
        ways = re.findall(rf'<a [^>]*href="(/jobs/{job.pk}/logs\?rank=[^"]+)"', page[page.index('id="ranks"') :])
        assert len(ways) >= 72 and all("attempt=1" in way for way in ways)
        assert '<input type="hidden" name="attempt" value="1">' in page[page.index('id="log"') :]


def test_the_verdict_of_the_newest_attempt_is_not_shown_with_an_earlier_one(owner, lab):
    job = lab.visit(seed.failed(lab, steps=4, rank=1, max_retries=1), times=4)
    now = timezone.now().timestamp()
    items = [
        log_item(2, 0, [(now, "ValueError: label 17 is outside 0..9")]),
        item("rank", rank=2, local_rank=0, state="failed", at=now, exit_code=1),
    ]
    apply.apply_batch(identity=identity(job, 1), batch=batch(1, *items))
    job = lab.finish(job, 1, 1)
    assert (job.phase, job.attempt) == ("failed", 2)
    assert "label 17" in owner.get(f"/jobs/{job.pk}").text
    first = owner.get(f"/jobs/{job.pk}?attempt=1").text
    first = first[: first.index('id="ranks"')]  # the history below lists the ends of all attempts
    assert "label 17" not in first and "torch.OutOfMemoryError" in first


def test_an_attempt_that_did_not_fail_shows_how_it_ended(owner, lab):
    job = seed.running(lab, steps=4)
    services.suspend(job=job, by=lab.user)
    job = lab.visit(job, times=4)
    services.resume(job=job, by=lab.user)
    lab.visit(job)
    schedule()
    job = lab.visit(job, times=3)
    assert job.attempt == 2
    page = owner.get(f"/jobs/{job.pk}?attempt=1").text
    assert "Attempt 1 ended: suspended" in page
    assert 'class="card verdict bad"' not in page


def test_a_job_stopping_after_a_failure_already_shows_what_failed(owner, lab):
    job = seed.running(lab, steps=4)
    now = timezone.now().timestamp()
    news = item("rank", rank=1, local_rank=1, state="failed", at=now, exit_code=1)
    apply.apply_batch(identity=identity(job), batch=batch(2, news))
    lab.cluster.finish(job.run, job.attempt, "worker", index=0, exit_code=1)
    job = lab.visit(job)
    assert (job.phase, job.stop_reason, job.failures) == ("stopping", "failed", 1)
    page = owner.get(f"/jobs/{job.pk}").text
    assert "What failed" in page and 'class="card verdict bad"' in page


def test_first_to_fail_is_not_shown_for_a_job_with_one_rank(owner, lab):
    alone = seed.failed(lab, rank=0, nodes=1, per_node=1, lines=["loading", "bye"])
    page = owner.get(f"/jobs/{alone.pk}").text
    assert alone.attempt_failures.get().certainty == "likely"
    assert 'class="card verdict bad"' in page and "first" not in page.split("card verdict bad")[1].split("</p>")[1]
    assert "rank to fail" not in page and "first to fail" not in page
    both = seed.failed(lab, steps=4, name="both")
    assert "It was the first rank to fail" in owner.get(f"/jobs/{both.pk}").text


def test_retries_used_are_the_failures_that_were_retried(owner, lab):
    job = lab.visit(seed.failed(lab, steps=4, max_retries=1), times=4)
    assert "1 of 1 retries used" in owner.get(f"/jobs/{job.pk}").text
    job = lab.finish(job, 1, 1)
    assert (job.phase, job.failures) == ("failed", 2)
    assert "1 of 1 retries used" in owner.get(f"/jobs/{job.pk}").text


def test_a_replica_stopped_on_request_is_no_warning(owner, lab, job):
    job.replicas.filter(index=0).update(reason="stopped on request")
    job.replicas.filter(index=1).update(reason="node is going away")
    page = owner.get(f"/jobs/{job.pk}").text
    assert "node is going away" in page
    assert "stopped on request" not in page


@pytest.mark.parametrize("query", ["attempt=99", "attempt=-1", "attempt=x", "view=%01", "rank=zz", "cursor=!!"])
def test_an_invalid_query_is_no_error(owner, job, query):
    assert owner.get(f"/jobs/{job.pk}?{query}").status_code == 200
    assert owner.get(f"/jobs/{job.pk}/logs?{query}").status_code == 200


def test_the_number_of_queries_does_not_grow_with_the_ranks(owner, lab, django_assert_max_num_queries):
    job = seed.running(lab, nodes=2, per_node=4, steps=4)
    with django_assert_max_num_queries(25):
        owner.get(f"/jobs/{job.pk}")


def test_notes_of_the_current_attempt_are_shown_in_the_head(owner, job, htmx):
    for attempt, words in (
        (job.attempt, "Agents of this job cannot reach the control plane"),
        (job.attempt + 1, "later"),
    ):
        JobEvent.objects.create(job=job, kind="note", phase=job.phase, attempt=attempt, message=words)
    state = htmx(owner, f"/jobs/{job.pk}", "state").text
    assert "Agents of this job cannot reach the control plane" in state and "later" not in state


def test_hostile_text_is_escaped(owner, lab):
    job = seed.failed(
        lab, steps=4, lines=["<script>alert(1)</script>", "\x1b[31m<b>red</b>\x1b[0m", "Error: \u202egnp.exe"]
    )
    JobEvent.objects.create(
        job=job, kind="note", phase=job.phase, attempt=job.attempt, message="<script>alert(2)</script>"
    )
    Job.objects.filter(pk=job.pk).update(name='"><script>alert(3)</script>', message="<script>alert(4)</script>")
    page = owner.get(f"/jobs/{job.pk}").text
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_pages_contain_no_inline_scripts_or_styles(owner, job, failed):
    for url in ("/jobs", f"/jobs/{job.pk}", f"/jobs/{failed.pk}", f"/jobs/{job.pk}/logs", "/jobs/new", "/queues"):
        page = owner.get(url).text
        assert not re.search(r"<script(?![^>]*src=)", page), url
        assert not re.search(r"\son[a-z]+=", page), url
        assert not re.search(r"\sstyle=|<style", page), url


def test_cancel_without_javascript_redirects_to_the_page(owner, job):
    assert owner.post(f"/jobs/{job.pk}/cancel").url == f"/jobs/{job.pk}"
    job.refresh_from_db()
    assert job.cancel_requested_at is not None


def test_cancel_with_htmx_returns_the_updated_header(owner, job):
    answer = owner.post(f"/jobs/{job.pk}/cancel", headers={"HX-Request": "true", "HX-Target": "state"})
    assert answer.text.startswith('<section id="state"')
    assert "cancel requested" in answer.text


def test_suspend_and_resume(owner, lab, job):
    owner.post(f"/jobs/{job.pk}/suspend")
    job = lab.visit(job, times=3)
    assert job.phase == "suspended"
    assert "Resume" in owner.get(f"/jobs/{job.pk}").text
    owner.post(f"/jobs/{job.pk}/resume")
    assert lab.visit(job).phase == "queued"


def test_suspending_a_finished_job_gives_the_reason_for_the_refusal(owner, failed):
    answer = owner.post(f"/jobs/{failed.pk}/suspend", follow=True)
    assert "resubmit it to run it again" in answer.text


def test_resubmit_makes_a_new_job(owner, failed):
    answer = owner.post(f"/jobs/{failed.pk}/resubmit")
    again = Job.objects.latest("id")
    assert answer.url == f"/jobs/{again.pk}"
    assert again.spec["command"] == failed.spec["command"]


def test_actions_of_users_are_in_the_history(owner, job, people):
    services.suspend(job=job, by=people.teammate)
    assert "by teammate" in owner.get(f"/jobs/{job.pk}").text
