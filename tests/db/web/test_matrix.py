"""The matrix of ranks: failed ranks come first, outside the scrolling box."""

import re

import pytest
from django.utils import timezone

from common.errors import InvalidInput
from jobs.ingest import apply
from jobs.models import Rank
from jobs.web.ranks import arrange, matrix
from tests.support import seed
from tests.support.builders import batch, identity, item


def big(lab, *, nodes: int, per_node: int = 8):
    lab.queue.nominal = nodes * per_node
    lab.queue.save()
    return lab.running(nodes=nodes, nproc_per_node=per_node)


def fail(job, *numbers: int) -> None:
    """Mark these ranks as failed, in this order of time."""
    for seconds, number in enumerate(numbers):
        Rank.objects.filter(job=job, rank=number).update(
            state="failed", exit_code=1, ended_at=timezone.now() + timezone.timedelta(seconds=seconds)
        )


def whole(page: str) -> str:
    """The part of the matrix outside the scrolling box."""
    found = re.search(r'<div class="whole">(.*?)</table>\s*</div>', page, re.S)
    return found[1] if found else ""


def numbers(part: str) -> list[int]:
    return [int(number) for number in re.findall(r'<(?:b|span) class="n">(\d+)</', part)]


@pytest.mark.parametrize("nodes", [2, 32])
def test_replicas_with_failed_ranks_come_first_outside_the_scrolling_box(owner, lab, nodes):
    job = big(lab, nodes=nodes)
    last = 8 * nodes - 1
    fail(job, last, 3)
    page = owner.get(f"/jobs/{job.pk}").text
    rows = whole(page)
    assert numbers(rows) == [*range(last - 7, last + 1), *range(8)]
    assert rows.count('class="cell bad') == page.count('class="cell bad') == 2
    assert sorted(numbers(page)) == list(range(8 * nodes))


def test_a_job_without_failures_has_one_table_in_order(owner, lab):
    job = big(lab, nodes=2)
    page = owner.get(f"/jobs/{job.pk}").text
    assert whole(page) == ""
    assert numbers(page) == list(range(16))


def test_the_rank_that_failed_first_is_marked(owner, lab):
    job = big(lab, nodes=2)
    fail(job, 9, 2)
    page = owner.get(f"/jobs/{job.pk}").text
    assert page.count('class="cell bad first"') == 1
    assert re.search(r'class="cell bad first"[^>]*title="Rank 9: failed, failed first', page)
    assert page.count("failed first</span>") == 1
    assert re.search(r">9</a></td><td><span[^>]*>.*?Failed first</span>", owner.get(f"/jobs/{job.pk}?view=list").text)


def test_a_rank_blamed_by_the_verdict_without_failing_is_the_likely_cause(lab):
    job = big(lab, nodes=2)
    fail(job, 2)
    ranks = list(Rank.objects.filter(job=job).order_by("rank"))
    grid = arrange(list(job.replicas.order_by("index")), ranks, now=timezone.now(), first=9)
    (named,) = [cell for cell in grid.cells if cell.is_first_failure]
    assert (named.rank.rank, named.first_words) == (9, "likely cause")
    assert [replica.index for replica, _ in grid.troubled] == [1, 0]


def test_ranks_stopped_by_the_launcher_are_not_failures(lab):
    job = seed.failed(lab, rank=1, steps=2)
    grid = matrix(job, attempt=1, now=timezone.now())
    assert [cell.rank.rank for cell in grid.cells if cell.is_first_failure] == [1]
    assert [replica.index for replica, _ in grid.troubled] == [0]
    assert [replica.index for replica, _ in grid.others] == [1]


def test_a_replica_that_was_asked_to_stop_did_not_fail(lab):
    job = lab.running()
    Rank.objects.filter(job=job).update(state="failed", signal=15, is_stopped=True)
    job.replicas.update(state="failed", exit_code=143)
    grid = matrix(job, attempt=1, now=timezone.now())
    assert set(grid.words.values()) == {"stopped"}
    job.ranks.filter(rank=0).update(signal=None, exit_code=1, is_stopped=False)
    grid = matrix(job, attempt=1, now=timezone.now())
    assert [grid.words[one.pk] for one in job.replicas.order_by("index")] == ["failed", "stopped"]


def test_an_earlier_attempt_marks_its_own_first_failure(owner, lab, htmx):
    job = lab.visit(seed.failed(lab, steps=4, rank=1, max_retries=1), times=4)
    at = timezone.now().timestamp()
    news = item("rank", rank=2, local_rank=0, state="failed", at=at, exit_code=1)
    apply.apply_batch(identity=identity(job, 1), batch=batch(1, news))
    first = htmx(owner, f"/jobs/{job.pk}?attempt=1", "ranks").text
    second = htmx(owner, f"/jobs/{job.pk}", "ranks").text
    assert 'title="Rank 1: failed, failed first' in first
    assert 'title="Rank 2: failed, failed first' in second


def test_the_state_of_a_gpu_is_in_its_cell_and_errors_in_words(owner, lab, htmx):
    job = seed.running(lab, nodes=1, per_node=2, steps=2)
    gpu = {
        "gpu": 0.93,
        "gpu_mem_bytes": 66 << 30,
        "gpu_mem_total_bytes": 80 << 30,
        "gpu_watts": 612.4,
        "gpu_celsius": 64,
    }
    now = timezone.now().timestamp()
    items = [
        item(
            "sample",
            rank=rank,
            at=now,
            cpu=0.9,
            rss_bytes=1,
            **gpu,
            **({"gpu_xid": 79, "gpu_ecc_errors": 2} if rank else {}),
        )
        for rank in (0, 1)
    ]
    apply.apply_batch(identity=identity(job), batch=batch(2, *items))
    page = owner.get(f"/jobs/{job.pk}").text
    assert "66 of 80 GiB" in page and "612 W, 64 °C" in page
    assert (
        "Rank 1</a> on worker-0: its GPU reports Xid 79 (the GPU has fallen off the bus) and its GPU&#x27;s memory has 2 uncorrected errors"
        in page
    )
    assert 'GPU <b class="num">93 %</b> of 2' in page
    assert 'GPU <b class="num">93 %</b> of 2' in htmx(owner, f"/jobs/{job.pk}", "ranks").text
    ranks = owner.get(f"/api/v1/jobs/{job.pk}/ranks").json()["results"]
    assert [(one["gpu_watts"], one["gpu_xid"], one["gpu_ecc_errors"]) for one in ranks] == [
        (612.4, None, None),
        (612.4, 79, 2),
    ]


@pytest.mark.parametrize(
    ("name", "value"), [("gpu_watts", 4294967.295), ("gpu_celsius", 4294967295), ("gpu_xid", 2**31)]
)
def test_a_slip_of_a_sensor_costs_its_own_value_only(owner, lab, name, value):
    job = seed.running(lab, nodes=1, per_node=2, steps=2)
    items = [item("sample", rank=rank, at=1.0, cpu=0.5, **({name: value} if rank else {})) for rank in (0, 1)]
    apply.apply_batch(identity=identity(job), batch=batch(2, *items))
    ranks = Rank.objects.filter(job=job).order_by("rank")
    assert [(one.cpu, getattr(one, name)) for one in ranks] == [(0.5, None), (0.5, None)]


def test_what_is_no_number_is_refused_by_name(lab):
    job = seed.running(lab, nodes=1, per_node=2, steps=2)
    with pytest.raises(InvalidInput, match="gpu_ecc_errors"):
        apply.apply_batch(identity=identity(job), batch=batch(2, item("sample", rank=0, at=1.0, gpu_ecc_errors="many")))


def test_the_last_sample_of_an_ended_rank_is_not_shown_as_current(owner, lab):
    job = seed.failed(lab, steps=4)
    page = owner.get(f"/jobs/{job.pk}").text
    assert "<dt>CPU</dt>" not in page and 'class="meter"' not in page
