"""/jobs: newest first, filters in the URL, paged by key so that new jobs do not shift a page that is being read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count, F, Max, Q
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from jobs.analysis import failures
from jobs.analysis.judging import Failure
from jobs.core import lifecycle
from jobs.models import AttemptFailure, Job, JobQuerySet, Rank, failed_with
from queues.readable import readable_queues

from .parts import Context, Part, Request, answer, named_part, whole

PAGE = 50
SEGMENTS = (("all", "All"), ("active", "Active"), ("finished", "Finished"))
_FINISHED = sorted(lifecycle.TERMINAL)


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
        return 100 * (self.running + self.ended) / self.job.world_size

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
    wanted = _filters(request)
    readable = Job.objects.readable_by(request.user)
    found = list(_page(_filtered(readable, request, wanted), request)[: PAGE + 1])
    older = found[PAGE - 1].pk if len(found) > PAGE else None
    return {
        "rows": rows(found[:PAGE]),
        "older": older,
        "is_first": whole(request.GET.get("before"), most=10**17) is None,
        "active_count": readable.active().count(),
        "segments": SEGMENTS,
        "queues": list(readable_queues(request.user).order_by("name").values_list("name", flat=True)),
        "kinds": AttemptFailure.KINDS,
        "is_filtered": bool(wanted["q"] or wanted["queue"] or wanted["mine"] or wanted["kind"]),
        **wanted,
    }


PARTS = {"jobs": Part("jobs/_list.html", _context)}


def _filters(request: Request) -> dict[str, Any]:
    show = request.GET.get("show", "all")
    return {
        "show": show if show in dict(SEGMENTS) else "all",
        "q": request.GET.get("q", "").replace("\0", "").strip()[:80],
        "queue": request.GET.get("queue", "").replace("\0", "")[:40],
        "mine": request.GET.get("mine") == "1",
        "kind": kind if (kind := request.GET.get("kind", "")) in dict(AttemptFailure.KINDS) else "",
    }


def _filtered(found: JobQuerySet, request: Request, wanted: dict[str, Any]) -> JobQuerySet:
    if wanted["show"] != "all":
        found = found.active() if wanted["show"] == "active" else found.filter(phase__in=_FINISHED)
    if wanted["queue"]:
        found = found.filter(queue__name=wanted["queue"])
    if wanted["kind"]:
        found = found.filter(failed_with([wanted["kind"]]))
    if wanted["mine"]:
        found = found.filter(user=request.user)
    if wanted["q"]:
        found = found.filter(Q(name__icontains=wanted["q"]) | Q(user__username__icontains=wanted["q"]))
    return found


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
