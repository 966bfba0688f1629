"""/jobs: newest first, filters in the URL, paged by key so that new jobs do not shift a page that is being read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count, F, Max, Q
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe
from django_filters import CharFilter, ChoiceFilter

from jobs.analysis import failures
from jobs.analysis.judging import Failure
from jobs.core import lifecycle
from jobs.filters import JobFilters
from jobs.models import AttemptFailure, Job, JobQuerySet, Rank
from queues.readable import readable_queues

from .parts import Context, Part, Request, answer, named_part, whole

PAGE = 50
SEGMENTS = (("all", "All"), ("active", "Active"), ("finished", "Finished"))


@dataclass(frozen=True)
class Row:
    """One job with a summary of its ranks."""

    job: Job
    running: int = 0
    ended: int = 0
    step: int | None = None
    failure: Failure | None = None

    @property
    def is_on_cluster(self) -> bool:
        return self.job.phase in lifecycle.ON_CLUSTER

    @property
    def share(self) -> float:
        return min(100.0, 100 * (self.running + self.ended) / (self.job.world_size or 1))

    @property
    def headline(self) -> str:
        """The error itself, if it explains the job's phase."""
        is_why = self.job.phase in (lifecycle.Phase.FAILED, lifecycle.Phase.STOPPING)
        return self.failure.headline if self.failure and is_why else ""


@require_safe
def home(request: Request) -> HttpResponse:
    return redirect("jobs")


@login_required
@require_safe
def jobs(request: Request) -> HttpResponse:
    part = named_part(request, parts=PARTS)
    context = _context(request)
    return answer(request, template=part.template if part else "jobs/list.html", context=context)


def _context(request: Request) -> Context:
    readable = Job.objects.readable_by(request.user)
    filters = PageFilters(request.GET, readable, request=request)
    asked = filters.values
    found = list(_page(filters.qs, request)[: PAGE + 1])
    older = found[PAGE - 1].pk if len(found) > PAGE else None
    return {
        "rows": rows(found[:PAGE]),
        "older": older,
        "is_first": whole(request.GET.get("before"), most=10**17) is None,
        "active_count": readable.active().count(),
        "segments": SEGMENTS,
        "asked": asked,
        "show": asked.get("show") or "all",
        "queues": list(readable_queues(request.user).order_by("name").values_list("name", flat=True)),
        "kinds": AttemptFailure.KINDS,
        "is_filtered": any(value for name, value in asked.items() if name != "show"),
    }


PARTS = {"jobs": Part("jobs/_list.html", _context)}


class PageFilters(JobFilters):
    """The filters of the API, and what only the page's form offers."""

    show = ChoiceFilter(choices=SEGMENTS, method="by_segment")
    mine = ChoiceFilter(choices=[("1", "Mine only")], method="by_user")
    q = CharFilter(max_length=80, method="by_text")

    def by_segment(self, jobs: JobQuerySet, name: str, segment: str) -> JobQuerySet:
        return jobs if segment == "all" else self.by_phase(jobs, name, [segment])

    def by_user(self, jobs: JobQuerySet, *_: str) -> JobQuerySet:
        return jobs.filter(user=self.request.user)

    def by_text(self, jobs: JobQuerySet, _: str, text: str) -> JobQuerySet:
        return jobs.filter(Q(name__icontains=text) | Q(user__username__icontains=text))


def _page(found: JobQuerySet, request: Request) -> JobQuerySet:
    before = whole(request.GET.get("before"), most=10**17)
    found = found.filter(pk__lt=before) if before is not None else found
    return found.select_related("team", "queue", "user").order_by("-pk")


def rows(jobs: Iterable[Job]) -> list[Row]:
    """Return rows for all of these jobs with two queries, however many there are."""
    jobs = list(jobs)
    found = failures.of_jobs(jobs)
    tallies = {
        one["job_id"]: one
        for one in Rank.objects.filter(job__in=[job.pk for job in jobs], attempt=F("job__attempt"))
        .order_by()
        .values("job_id")
        .annotate(
            running=Count("id", filter=Q(state="running")),
            ended=Count("id", filter=Q(state="succeeded")),
            top=Max("step"),
        )
    }
    return [_row(job, tallies.get(job.pk), found.get(job.pk)) for job in jobs]


def _row(job: Job, tally: Mapping[str, Any] | None, failure: Failure | None) -> Row:
    return Row(job, tally["running"], tally["ended"], tally["top"], failure) if tally else Row(job, failure=failure)
