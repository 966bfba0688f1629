"""/jobs/<id>: one page in six parts, each fetched alone when a hint names it."""

import shlex

from django.contrib.auth.decorators import login_required
from django.db.models import Max, QuerySet
from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounts.permissions import Act, may
from jobs import frameworks
from jobs.analysis import failures
from jobs.analysis.attempts import attempts
from jobs.analysis.metrics import MAX_RANKS
from jobs.analysis.progress import progress
from jobs.core.lifecycle import ON_CLUSTER, Phase, StopReason
from jobs.models import Job, JobEvent, RankState

from . import present
from .logs import opening_context
from .metrics import drawn
from .parts import Context, Part, Request, answer, named_part, readable_job, whole
from .phases import bar, legs
from .rank_map import RankMap, rank_map
from .ranks import Matrix, matrix

EVENTS = 200
MAP_ABOVE = 256  # ranks; more than these are drawn as a map, and listed by pages
LISTED = 100


@login_required
@require_safe
def detail(request: Request, pk: int) -> HttpResponse:
    job = readable_job(request, pk=pk)
    part = named_part(request, parts=PARTS)
    context = common(request, job=job)
    for piece in [part] if part else PARTS.values():
        context |= piece.context(request, job=job)
    return answer(request, template=part.template if part else "jobs/detail.html", context=context)


def common(request: Request, *, job: Job) -> Context:
    """Return the context shared by all parts. `is_live` decides whether elements have triggers."""
    asked = whole(request.GET.get("attempt"))
    attempt = asked if asked is not None and 1 <= asked <= job.attempt else job.attempt
    return {
        "job": job,
        "attempt": attempt,
        "is_old": attempt != job.attempt,
        "is_live": not job.is_finished and attempt == job.attempt,
    }


def state_context(request: Request, *, job: Job) -> Context:
    history = list(_history(job).values_list("kind", "phase", "at", "attempt", "message"))
    attempt = common(request, job=job)["attempt"]
    is_old = attempt != job.attempt
    ended = next((one for one in attempts(job) if one.attempt == attempt), None) if is_old else None
    is_failing = job.phase == Phase.FAILED or job.stop_reason == StopReason.FAILED
    has_failed = ended.has_failed if ended else is_failing
    failure = failures.first_failure(job, attempt) if has_failed else None
    stays = legs((Phase(phase), at, number) for kind, phase, at, number, _ in history if kind == "step")
    return {
        "slices": bar(stays, now=timezone.now()),
        "notes": [words for kind, _, _, number, words in history if kind == "note" and number == attempt],
        "ended": ended,
        "failure": failure,
        "retried": failures.first_failure(job, job.attempt - 1) if _was_retried(job) and not is_old else None,
        "retries_used": present.retries_used(job.failures, has_failed=is_failing),
        "attempts": range(1, job.attempt + 1) if job.attempt > 1 else (),
        "may_control": may(request.user, Act.CONTROL, job.team),
        "step": job.ranks.filter(attempt=attempt).aggregate(most=Max("step"))["most"],
        "is_importing": job.phase == Phase.RUNNING
        and bool(job.world_size)
        and not job.ranks.filter(attempt=attempt).exclude(state=RankState.WAITING).exists(),
        "progress": None if is_old or job.is_finished else progress([job]).get(job.pk),
        "stopping": frameworks.get(job.spec["framework"]).STOPPING,
        "can_suspend": not job.is_finished and not job.suspended and job.cancel_requested_at is None,
        "can_resume": not job.is_finished and job.suspended and job.cancel_requested_at is None,
        "can_cancel": not job.is_finished and job.cancel_requested_at is None,
        "can_end_now": not job.is_finished and job.cancel_requested_at is not None and job.cancel_now_at is None,
        "is_waiting": job.phase == Phase.QUEUED,
    }


def ranks_context(request: Request, *, job: Job) -> Context:
    attempt = common(request, job=job)["attempt"]
    as_list, is_large, start = request.GET.get("view") == "list", job.world_size > MAP_ABOVE, 0
    grid: Matrix | RankMap
    if is_large and not as_list:
        grid = rank_map(job, attempt=attempt, now=timezone.now())
    else:
        start = min(whole(request.GET.get("from")) or 0, (job.world_size - 1) // LISTED * LISTED) if is_large else 0
        only = range(start, start + LISTED) if is_large else None
        grid = matrix(job, attempt=attempt, now=timezone.now(), only=only)
    is_alone = named_part(request, parts=PARTS) is not None  # then it includes the step in the page's head
    return {
        "grid": grid,
        "is_alone": is_alone,
        "as_list": as_list,
        "listed_before": max(0, start - LISTED) if start else None,
        "listed_after": start + LISTED if is_large and start + LISTED < job.world_size else None,
        "is_on_cluster": job.phase in ON_CLUSTER,
        **({"progress": progress([job]).get(job.pk)} if is_alone and common(request, job=job)["is_live"] else {}),
    }


def charts_context(request: Request, *, job: Job) -> Context:
    attempt = common(request, job=job)["attempt"]
    failed = failures.first_failing_rank(job, attempt)
    chosen = ranks_chosen(request)
    first = ([failed] if failed is not None else []) + chosen
    page = whole(request.GET.get("metrics")) or 1
    return {
        "drawing": drawn(job, attempt=attempt, first=first, page=page),
        "failed_first": failed,
        "chosen": chosen,
        "is_cut": job.world_size > MAX_RANKS,
        "most_ranks": MAX_RANKS,
    }


def ranks_chosen(request: Request) -> list[int]:
    """Return the ranks in the URL: ?ranks=3,7 for the charts, ?rank=5 for the log. Malformed numbers are ignored."""
    said = [*request.GET.get("ranks", "").replace(",", " ").split()[:MAX_RANKS], request.GET.get("rank")]
    found = (whole(text) for text in said)
    return list(dict.fromkeys(rank for rank in found if rank is not None))


def events_context(request: Request, *, job: Job) -> Context:
    events = list(job.events.select_related("user").order_by("-id")[:EVENTS])
    return {"events": events}


def about_context(request: Request, *, job: Job) -> Context:
    return {
        "command": shlex.join(job.command),
        "cli": f"muster logs -f {job.pk}",
        "secrets": job.spec.get("secrets", []),
        "env": sorted(job.spec.get("env", {}).items()),
        "env_text": "\n".join(f"{name}={value}" for name, value in sorted(job.spec.get("env", {}).items())),
    }


def _history(job: Job) -> QuerySet[JobEvent]:
    """Return its steps and notes (jobs/history.py: a few per attempt at most)."""
    return JobEvent.objects.filter(job=job, kind__in=("step", "note")).order_by("id")


def _was_retried(job: Job) -> bool:
    return job.failures > 0 and job.attempt > 1 and not job.is_finished


PARTS = {
    "state": Part("jobs/_state.html", state_context),
    "ranks": Part("jobs/_ranks.html", ranks_context),
    "charts": Part("jobs/_charts.html", charts_context),
    "log": Part("jobs/_log.html", opening_context),
    "events": Part("jobs/_events.html", events_context),
    "about": Part("jobs/_about.html", about_context),
}
