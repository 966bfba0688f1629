"""All ranks of a large job at once: a drawing, the ranks that need a look, and a list by pages."""

import gzip
import re

import pytest
from django.utils import timezone

from jobs.core.verdict import RoleView
from jobs.models import Rank
from jobs.web import detail
from jobs.web.concerns import SHOWN, needs_attention
from jobs.web.rank_map import drawn, layout, rank_map

pytestmark = pytest.mark.django_db


@pytest.fixture
def large(lab):
    """A running job of 1,024 ranks on 128 replicas."""
    lab.queue.nominal = 1024
    lab.queue.save()
    job = lab.running(nodes=128, nproc_per_node=8)
    Rank.objects.filter(job=job).update(state="running", step=500, started_at=timezone.now())
    return job


def cells(svg: str) -> dict[str, int]:
    """How many cells each state's path has: each cell is closed once."""
    return {tone: path.count("z") for tone, path in re.findall(r'<path class="(\w+)" d="([^"]*)"', svg)}


def test_every_rank_is_in_the_drawing_and_the_page_is_small(owner, large):
    Rank.objects.filter(job=large, rank=700).update(state="failed", exit_code=1, ended_at=timezone.now())
    page = owner.get(f"/jobs/{large.pk}").text
    (svg,) = re.findall(r"<svg class=\"map\".*?</svg>", page, re.S)
    assert 'aria-label="worker: 1,023 running, 1 failed"' in svg
    assert cells(svg)["run"] == 1023 and cells(svg)["bad"] == 1
    assert 'class="cell' not in page
    assert len(gzip.compress(page.encode())) < 20_000


def test_failed_ranks_come_first_among_those_that_need_a_look(owner, large):
    now = timezone.now()
    Rank.objects.filter(job=large, rank=911).update(last_line_at=now - timezone.timedelta(minutes=9), cpu=0.0)
    Rank.objects.filter(job=large, rank=5).update(step=100, started_at=now - timezone.timedelta(hours=1))
    Rank.objects.filter(job=large, rank=700).update(state="failed", exit_code=1, ended_at=now)
    Rank.objects.filter(job=large, rank=20).update(gpu=0.01)
    needs = rank_map(large, attempt=1, now=now).needs
    assert [(one.rank, one.replica) for one in needs.shown] == [
        (700, "worker-87"),
        (911, "worker-113"),
        (5, "worker-0"),
        (20, "worker-2"),
    ]
    assert [one.words for one in needs.shown] == [
        "failed first", "silent for 9 min 00 s: no line, and its CPU does nothing", "400 steps behind the others", "its GPU is used 1%",
    ]  # fmt: skip
    assert rank_map(large, attempt=1, now=now).letters[911] == "q", "a silent rank looks silent"
    page = owner.get(f"/jobs/{large.pk}").text
    assert "4 ranks need a look" in page and f'href="/jobs/{large.pk}/logs?rank=700"' in page


def test_a_loss_that_is_not_finite_on_all_ranks_is_said_once(large):
    Rank.objects.filter(job=large).update(nan_series="loss", nan_step=2000)
    Rank.objects.filter(job=large, rank=7).update(nan_step=1990)
    count = Rank.objects.filter(job=large).count()
    assert [(one.rank, one.words) for one in rank_map(large, attempt=1, now=timezone.now()).needs.shown] == [
        (0, f"loss is NaN since step 2,000, as on {count - 2:,} other ranks"),
        (7, "loss is NaN since step 1,990"),
    ]


def test_only_the_first_of_many_are_named():
    class One:
        replica_id, is_stopped, step, last_line_at, cpu, gpu, state = 1, False, None, None, None, None, "failed"
        gpu_ecc_errors, gpu_xid, nan_series, nan_step = None, None, "", None

        def __init__(self, rank):
            self.rank = rank

    found = needs_attention([One(n) for n in range(100)], names={1: "worker-0"}, late={}, first=40, now=timezone.now())
    assert found.shown[0].rank == 40 and (len(found.shown), found.more, found.count) == (SHOWN, 100 - SHOWN, 100)


@pytest.mark.parametrize(("tiles", "per"), [(1, 1), (1, 300), (128, 8), (1250, 8), (10_000, 1), (313, 3), (40, 16)])
def test_no_two_cells_share_a_place_and_all_are_inside(tiles, per):
    plan = layout(tiles, per)
    places = [plan.corner(number) for number in range(tiles * per)]
    width, height = plan.size
    assert len(set(places)) == tiles * per
    assert all(0 <= x <= width - 8 + 1 and 0 <= y <= height - 8 + 1 for x, y in places)
    assert 0.5 < width / height < 3 or tiles == 1


def test_ten_thousand_cells_compress_to_a_few_kilobytes():
    letters = "".join("f" if number % 997 == 0 else "r" for number in range(10_000))
    assert len(gzip.compress(drawn(letters, layout(1250, 8)).encode())) < 5_000


def test_the_list_of_a_large_job_comes_by_pages(owner, large):
    page = owner.get(f"/jobs/{large.pk}?view=list&from=900").text
    ranks = [int(number) for number in re.findall(r'logs\?rank=(\d+)">\1</a></td>', page)]
    assert ranks == list(range(900, 1000))
    assert "from=800#ranks" in page and "from=1000#ranks" in page
    assert "from=1100" not in owner.get(f"/jobs/{large.pk}?view=list&from=1000").text
    assert owner.get(f"/jobs/{large.pk}?view=list&from=99999999").status_code == 200


def test_the_map_is_read_with_few_queries(owner, large, django_assert_max_num_queries):
    with django_assert_max_num_queries(4):
        rank_map(large, attempt=1, now=timezone.now())


def test_a_job_of_several_roles_has_a_map_for_each(large):
    large.roles = [
        RoleView("trainers", 100, True, True, processes=8).to_json(),
        RoleView("helper", 28, True, True, processes=8, first_rank=800).to_json(),
    ]
    large.save()
    large.__dict__.pop("role_views", None)
    grid = rank_map(large, attempt=1, now=timezone.now())
    assert [(band.role, band.words) for band in grid.bands] == [
        ("trainers", "100 replicas, 800 ranks"), ("helper", "28 replicas, 224 ranks"),
    ]  # fmt: skip
    assert 'data-first="800" data-count="224"' in grid.bands[1].svg


def test_up_to_the_limit_ranks_have_cells_of_their_own(owner, lab):
    lab.queue.nominal = detail.MAP_ABOVE
    lab.queue.save()
    job = lab.running(nodes=detail.MAP_ABOVE // 8, nproc_per_node=8)
    assert 'class="map"' not in owner.get(f"/jobs/{job.pk}").text
