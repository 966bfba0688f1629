"""/jobs: one line for each job, newest first, filters and order in the URL.

The newest come paged by key, so that new jobs do not shift a page that is being read; another order comes by page number.
A page that is open is sent the rows that have changed, and all of them only if others came or went.
"""

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Avg, Count, Exists, F, Max, Min, OuterRef, Q
from django.http import HttpResponse
from django.template import Context
from django.template.loader import get_template
from django.utils import timezone
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe
from django_filters import CharFilter, ChoiceFilter

from accounts.permissions import Act, is_platform_admin, teams_where
from jobs.analysis import failures
from jobs.analysis.judging import Failure
from jobs.analysis.metrics import Latest, latest
from jobs.analysis.progress import Progress, progress
from jobs.core import lifecycle
from jobs.core.headlines import nan_words
from jobs.core.lifecycle import Phase
from jobs.core.silence import IDLE
from jobs.filters import JobFilters
from jobs.models import AttemptFailure, Job, JobEvent, JobQuerySet, Rank
from queues.readable import readable_queues

from .concerns import is_silent
from .responses import Context as Values
from .responses import HtmxRequest, Part, answer, named_part, unchanged, whole

PAGE = 100
MOST_PAGE = 1000
SEGMENTS = (("all", "All"), ("active", "Active"), ("finished", "Finished"))
SINCE = (("1h", "Last hour"), ("24h", "Last 24 hours"), ("7d", "Last 7 days"), ("30d", "Last 30 days"))
_SINCE = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}
# By the word in the URL; every order ends with the newest first.
ORDERS = {
    "": ("-pk",),
    "oldest": ("pk",),
    "name": ("name", "-pk"),
    "state": ("phase", "-pk"),
    "user": ("user__username", "-pk"),
    "size": ("-slots", "-pk"),
    "ended": (F("finished_at").desc(nulls_first=True), "-pk"),
}
# How long ago something was, in words, which the page itself keeps current (static/ui.js).
_TICKING = re.compile(r"(?<=>)[^<>]*(?=</time>)")
KNOWN_HEADER = "Muster-Rows"  # "12=9f3a01bc,11=...": the rows that an open page has, in their order


@dataclass(frozen=True)
class JobRow:
    """One job with a summary of its ranks, in its newest attempt."""

    job: Job
    running: int = 0
    ended: int = 0
    failed: int = 0
    step: int | None = None
    gpu: float | None = None  # of a GPU in use, the mean over its running ranks
    idle_gpus: int = 0
    silent: int = 0
    nan_series: str = ""  # of a rank whose loss is not finite
    nan_step: int | None = None
    failure: Failure | None = None
    metric: Latest | None = None
    progress: Progress | None = None
    admitted_at: datetime | None = None  # for the first time
    last_ran_at: datetime | None = None
    may_control: bool = False

    @property
    def is_on_cluster(self) -> bool:
        return self.job.phase in lifecycle.ON_CLUSTER

    @property
    def is_importing(self) -> bool:
        return (
            self.job.phase == Phase.RUNNING
            and bool(self.job.world_size)
            and not (self.running or self.ended or self.failed)
        )

    @property
    def world(self) -> int:
        """The number of ranks: planned, or more where the command started more."""
        return max(self.job.world_size, self.running + self.ended + self.failed)

    @property
    def share(self) -> float:
        return 100 * (self.running + self.ended) / (self.world or 1)

    @property
    def headline(self) -> str:
        """The error itself, if it explains the job's phase."""
        is_why = self.job.phase in (Phase.FAILED, Phase.STOPPING)
        return self.failure.headline if self.failure and is_why else ""

    @property
    def error(self) -> str:
        """The same without the rank before it."""
        rank = self.failure.rank if self.failure else None
        return self.headline.removeprefix(f"rank {rank}: ")

    @property
    def nan_words(self) -> str:
        return nan_words(self.nan_series, self.nan_step)

    @property
    def ran_since(self) -> datetime | None:
        """When its newest attempt began to run, of a job that has not been left waiting again."""
        if self.job.phase == Phase.SUSPENDED:
            return self.last_ran_at
        return self.job.running_at if self.job.phase not in (Phase.QUEUED, Phase.ADMITTED) else None

    @property
    def ran_until(self) -> datetime | None:
        return self.job.phase_since if self.job.phase == Phase.SUSPENDED else self.job.finished_at

    @property
    def waited_until(self) -> datetime | None:
        """When its first wait for quota was over; None while it lasts."""
        return self.admitted_at or self.job.finished_at


@login_required
@require_safe
def jobs(request: HtmxRequest) -> HttpResponse:
    part = named_part(request, parts=PARTS)
    context = _context(request)
    known = _known(request) if part else None
    if known and [*known] == [row.job.pk for row in context["rows"]]:
        context["changed"] = [one for one in context["drawn"] if known[one.pk] != one.version]
        if not context["changed"]:
            return unchanged()
        return answer(request, template="jobs/_list_changes.html", context=context)
    return answer(request, template=part.template if part else "jobs/list.html", context=context)


def _context(request: HtmxRequest) -> Values:
    readable = Job.objects.readable_by(request.user)
    filters = PageFilters(request.GET, readable, request=request)
    asked = filters.values
    order = request.GET.get("sort", "")
    order = order if order in ORDERS else ""
    number = max(1, whole(request.GET.get("page"), most=MOST_PAGE) or 1) if order else 1
    found = list(_page(filters.qs, request, order)[(number - 1) * PAGE : number * PAGE + 1])
    has_more = len(found) > PAGE
    queues = list(readable_queues(request.user).order_by("name").values_list("name", "team__name"))
    teams = teams_where(request.user, Act.CONTROL)
    summed = [replace(row, may_control=teams is None or row.job.team_id in teams) for row in rows(found[:PAGE])]
    template = get_template("jobs/_list_row.html").template  # type: ignore[attr-defined]
    return {
        "rows": summed,
        "may_control": any(row.may_control for row in summed),
        "drawn": [_drawn(row, template) for row in summed],
        "older": found[PAGE - 1].pk if has_more and not order else None,
        "next_page": number + 1 if has_more and order else None,
        "previous_page": number - 1 if number > 1 else None,
        "is_first": number == 1 and (bool(order) or whole(request.GET.get("before"), most=10**17) is None),
        "active_count": readable.active().count(),
        "segments": SEGMENTS,
        "asked": asked,
        "order": order,
        "show": asked.get("show") or "all",
        "first": None if summed else _first(request, has_queue=bool(queues)),
        "queues": [name for name, _ in queues],
        "teams": sorted({team for _, team in queues}),
        "kinds": AttemptFailure.KINDS,
        "phases": list(Phase),  # a template would call the class
        "since": SINCE,
        "has_more_filters": any(
            asked.get(name) for name in ("team", "user", "phase", "since", "kind", "silent", "image")
        ),
        "is_filtered": any(value for name, value in asked.items() if name != "show"),
    }


def _first(request: HtmxRequest, *, has_queue: bool) -> str:
    """Return what somebody without any job can do first: submit, queue, look or ask."""
    if not has_queue:
        return "queue" if is_platform_admin(request.user) else "ask"
    may_submit = teams_where(request.user, Act.SUBMIT)
    return "submit" if may_submit is None or may_submit else "look"


PARTS = {"jobs": Part("jobs/_list.html", _context)}


class PageFilters(JobFilters):
    """The filters of the API, and what only the page's form offers."""

    show = ChoiceFilter(choices=SEGMENTS, method="by_segment")
    mine = ChoiceFilter(choices=[("1", "Mine only")], method="by_user")
    since = ChoiceFilter(choices=SINCE, method="by_age")
    silent = ChoiceFilter(choices=[("1", "Silent ranks")], method="by_silence")
    q = CharFilter(max_length=80, method="by_text")

    def by_segment(self, jobs: JobQuerySet, name: str, segment: str) -> JobQuerySet:
        return jobs if segment == "all" else self.by_phase(jobs, name, [segment])

    def by_user(self, jobs: JobQuerySet, *_: str) -> JobQuerySet:
        return jobs.filter(user=self.request.user)

    def by_age(self, jobs: JobQuerySet, _: str, age: str) -> JobQuerySet:
        return jobs.filter(created_at__gte=timezone.now() - _SINCE[age])

    def by_silence(self, jobs: JobQuerySet, *_: str) -> JobQuerySet:
        """Keep running jobs with a rank that does nothing and says nothing."""
        mine = Rank.objects.filter(is_silent(timezone.now()), job=OuterRef("pk"), attempt=OuterRef("attempt"))
        return jobs.filter(Exists(mine), phase=Phase.RUNNING)

    def by_text(self, jobs: JobQuerySet, _: str, text: str) -> JobQuerySet:
        """Match names and users; a number, such as 12 or #12, also as a job's id."""
        number = whole(text.removeprefix("#"), most=10**17)
        return jobs.filter(Q(name__icontains=text) | Q(user__username__icontains=text) | Q(pk=number or 0))


def _page(found: JobQuerySet, request: HtmxRequest, order: str) -> JobQuerySet:
    before = whole(request.GET.get("before"), most=10**17) if not order else None
    found = found.filter(pk__lt=before) if before is not None else found
    return found.select_related("team", "queue", "user").order_by(*ORDERS[order])


def rows(jobs: Iterable[Job]) -> list[JobRow]:
    """Return rows for all of these jobs with five queries, however many there are."""
    jobs = list(jobs)
    ids = [job.pk for job in jobs]
    found = failures.of_jobs(jobs)
    tallies = {
        one["job_id"]: one
        for one in Rank.objects.filter(job__in=ids, attempt=F("job__attempt"))
        .order_by()
        .values("job_id")
        .annotate(
            running=Count("id", filter=Q(state="running")),
            ended=Count("id", filter=Q(state="succeeded")),
            failed=Count("id", filter=Q(state="failed")),
            step=Max("step"),
            idle_gpus=Count("id", filter=Q(state="running", gpu__lt=IDLE)),  # before `gpu` is the name of the mean
            silent=Count("id", filter=is_silent(timezone.now())),
            gpu=Avg("gpu", filter=Q(state="running")),
            nan_series=Max("nan_series"),
            nan_step=Min("nan_step"),
        )
    }
    steps = JobEvent.objects.filter(job__in=ids, kind="step", phase__in=(Phase.ADMITTED, Phase.RUNNING)).order_by()
    times = {
        one["job_id"]: {"admitted_at": one["admitted"], "last_ran_at": one["ran"]}
        for one in steps.values("job_id").annotate(
            admitted=Min("at", filter=Q(phase=Phase.ADMITTED)), ran=Max("at", filter=Q(phase=Phase.RUNNING))
        )
    }
    running = [job for job in jobs if job.phase == Phase.RUNNING]
    metrics, far = latest([(job.pk, job.attempt) for job in running]), progress(running)
    return [
        JobRow(
            job, **_counts(tallies.get(job.pk)), failure=found.get(job.pk), metric=metrics.get(job.pk),
            progress=far.get(job.pk), **times.get(job.pk, {}),
        )
        for job in jobs
    ]  # fmt: skip


def _counts(tally: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (tally or {}).items() if name != "job_id"}


# -- rows as they are sent


@dataclass(frozen=True)
class Drawn:
    """A row as HTML, and a short mark of its content."""

    pk: int
    version: str
    html: SafeString


def _drawn(row: JobRow, template: Any) -> Drawn:
    # Numbers are formatted by filters; Django's own formatting of each would take a tenth of the page's time.
    html = template.render(Context({"row": row, "job": row.job}, use_l10n=False))
    return Drawn(row.job.pk, f"{zlib.crc32(_TICKING.sub('', html).encode()):08x}", html)


def _known(request: HtmxRequest) -> dict[int, str]:
    """Return the rows that the page has, by id in their order; empty if it does not say so."""
    pairs = (word.partition("=") for word in request.headers.get(KNOWN_HEADER, "").split(",")[: PAGE + 1])
    return {number: version for text, _, version in pairs if (number := whole(text, most=10**17)) is not None}
