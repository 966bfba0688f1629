"""/jobs/<id>: one page in seven parts, each fetched alone when a hint names it."""

import re
import shlex
from dataclasses import replace

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Exists, Max, QuerySet
from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounts.permissions import Act, may
from jobs import frameworks
from jobs.analysis import checkpoints, failures
from jobs.analysis.attempts import attempts
from jobs.analysis.metrics import MAX_RANKS
from jobs.analysis.progress import progress
from jobs.core.lifecycle import ON_CLUSTER, Phase, StopReason
from jobs.core.volumes import mounts
from jobs.models import Delivery, Job, JobEvent, RankState
from jobs.scheduling import waiting
from queues import templates

from . import appearance, plan
from .concerns import gpu_use
from .logs import opening_context
from .metrics import ChartQuery, Zoom, drawn
from .phases import bar, legs
from .rank_map import RankMap, rank_map
from .ranks import Matrix, landed, matrix
from .responses import Context, HtmxRequest, Part, answer, named_part, readable_job, tell_address, whole

EVENTS = 200
DELIVERIES = 20
CHECKPOINTS = 5
MAP_ABOVE = 256  # ranks; more than these are drawn as a map, and listed by pages
LISTED = 100


@login_required
@require_safe
def detail(request: HtmxRequest, pk: int) -> HttpResponse:
    job = readable_job(request, pk=pk)
    part = named_part(request, parts=PARTS)
    context = common(request, job=job)
    for piece in [part] if part else PARTS.values():
        context |= piece.context(request, job=job)
    response = answer(request, template=part.template if part else "jobs/detail.html", context=context)
    if part is PARTS["charts"] and request.headers.get("HX-Source", "").endswith("#chart-form"):
        now = {name: value for name in CHART_FIELDS if (value := request.GET.get(name, "").strip())}
        tell_address(response, request, job=job, names=CHART_FIELDS, now=now)
    return response


def common(request: HtmxRequest, *, job: Job) -> Context:
    """Return the context shared by all parts. `is_live` decides whether elements have triggers."""
    asked = whole(request.GET.get("attempt"))
    attempt = asked if asked is not None and 1 <= asked <= job.attempt else job.attempt
    return {
        "job": job,
        "attempt": attempt,
        "is_old": attempt != job.attempt,
        "is_live": not job.is_finished and attempt == job.attempt,
    }


def state_context(request: HtmxRequest, *, job: Job) -> Context:
    history = list(_history(job).values_list("kind", "phase", "at", "attempt", "message"))
    attempt = common(request, job=job)["attempt"]
    is_old = attempt != job.attempt
    ended = next((one for one in attempts(job) if one.attempt == attempt), None) if is_old else None
    is_failing = job.phase == Phase.FAILED or job.stop_reason == StopReason.FAILED
    has_failed = ended.has_failed if ended else is_failing
    failure = failures.first_failure(job, attempt) if has_failed else None
    stays = legs((Phase(phase), at, number) for kind, phase, at, number, _ in history if kind == "step")
    ranks = job.ranks.filter(attempt=attempt).aggregate(step=Max("step"), count=Count("pk"))
    launched = sorted({number for *_, number, _ in history if number} | {job.attempt})
    return {
        "slices": bar(stays, now=timezone.now()),
        "notes": [words for kind, _, _, number, words in history if kind == "note" and number == attempt],
        "ended": ended,
        "failure": failure,
        "retried": failures.first_failure(job, job.attempt - 1) if _was_retried(job) and not is_old else None,
        "retries_used": appearance.retries_used(job.failures, has_failed=is_failing),
        "attempts": launched if len(launched) > 1 else (),
        "may_control": may(request.user, Act.CONTROL, job.team),
        "gpu_use": None if is_old or job.is_finished else gpu_use(job, attempt),
        "step": ranks["step"],
        "started": ranks["count"] if 0 < job.world_size < ranks["count"] else None,  # more than were planned
        "is_importing": job.phase == Phase.RUNNING
        and bool(job.world_size)
        and not job.ranks.filter(attempt=job.attempt).exclude(state=RankState.WAITING).exists(),
        "progress": None if is_old or job.is_finished else progress([job]).get(job.pk),
        "stopping": frameworks.get(job.spec["framework"]).STOPPING,
        "can_suspend": not job.is_finished and not job.suspended and job.cancel_requested_at is None,
        "can_resume": not job.is_finished and job.suspended and job.cancel_requested_at is None,
        "can_cancel": not job.is_finished and job.cancel_requested_at is None,
        "can_end_now": not job.is_finished and job.cancel_requested_at is not None and job.cancel_now_at is None,
        "is_waiting": job.phase == Phase.QUEUED,
        "waits": waiting.of_job(job) if job.phase == Phase.QUEUED else None,
    }


def ranks_context(request: HtmxRequest, *, job: Job) -> Context:
    attempt = common(request, job=job)["attempt"]
    as_list, is_large, start = request.GET.get("view") == "list", job.world_size > MAP_ABOVE, 0
    now = timezone.now()
    grid: Matrix | RankMap
    if not is_large:
        grid = matrix(job, attempt=attempt, now=now)
    else:
        grid = everyone = rank_map(job, attempt=attempt, now=now)
        if as_list:
            start = min(whole(request.GET.get("from")) or 0, (job.world_size - 1) // LISTED * LISTED)
            part = matrix(job, attempt=attempt, now=now, only=range(start, start + LISTED), late=everyone.behind)
            grid = replace(part, counts=everyone.summary, median=everyone.median, furthest=everyone.furthest)
    is_alone = named_part(request, parts=PARTS) is not None  # then it includes the step in the page's head
    return {
        "grid": grid,
        "landed": landed(job, attempt=attempt),
        "is_alone": is_alone,
        "as_list": as_list,
        "listed_before": max(0, start - LISTED) if start else None,
        "listed_after": start + LISTED if is_large and start + LISTED < job.world_size else None,
        "is_on_cluster": job.phase in ON_CLUSTER,
        **(_head(job, attempt) if is_alone and common(request, job=job)["is_live"] else {}),
    }


def _head(job: Job, attempt: int) -> Context:
    """Return what the page's head shows beside the ranks' furthest step."""
    return {"progress": progress([job]).get(job.pk), "gpu_use": gpu_use(job, attempt)}


def charts_context(request: HtmxRequest, *, job: Job) -> Context:
    attempt = common(request, job=job)["attempt"]
    failed = failures.first_failing_rank(job, attempt)
    chosen = ranks_chosen(request)
    pinned = ([failed] if failed is not None else []) + chosen
    with_other = whole(request.GET.get("with"), most=10**17)
    other = Job.objects.readable_by(request.user).filter(pk=with_other).first() if with_other else None
    wanted = request.GET.get("smooth", "")
    smooth = wanted if wanted in SMOOTH else ""
    asked = ChartQuery(
        page=whole(request.GET.get("metrics")) or 1, pinned=pinned, failed=failed, zoom=zoom_of(request.GET.get("zoom", "")),
        is_log=request.GET.get("scale") == "log", smooth=float(smooth or 0), other=other,
    )  # fmt: skip
    return {
        "drawing": drawn(job, attempt=attempt, asked=asked),
        "failed_first": failed,
        "chosen": chosen,
        "charts_asked": asked,
        "zoom": request.GET.get("zoom", "").strip()[:40],
        "kept": [(name, value) for name, value in request.GET.items() if name not in CHART_FIELDS],
        "smooth": smooth,
        "smooth_choices": SMOOTH.items(),
        "missing_other": with_other if with_other and other is None else None,
        "is_cut": job.world_size > MAX_RANKS,
        "most_ranks": MAX_RANKS,
    }


CHART_FIELDS = ("ranks", "zoom", "scale", "smooth", "with", "metrics")  # in an address
# How much of what was stays in each point, by the word in the address.
SMOOTH = {"": "as reported", "0.6": "a little", "0.9": "much", "0.98": "very much"}
_ZOOM = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([smh]?) *- *([0-9]{1,15}(?:\.[0-9]{1,6})?)([smh]?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def zoom_of(text: str) -> Zoom | None:
    """Return the zoom of an address: 100-250 are steps, 60s-90s, 1m-2m or 1h-3h times. Malformed ones are ignored."""
    found = _ZOOM.fullmatch(text.strip())
    if found is None or bool(found[2]) != bool(found[4]):
        return None
    low, high = sorted(float(found[at]) * _SECONDS.get(found[at + 1], 1) for at in (1, 3))
    return Zoom(low, high, by_step=not found[2]) if low < high else None


def ranks_chosen(request: HtmxRequest) -> list[int]:
    """Return the ranks in the URL: ?ranks=3,7 for the charts, ?rank=5 for the log. Malformed numbers are ignored."""
    words = [*request.GET.get("ranks", "").replace(",", " ").split()[:MAX_RANKS], request.GET.get("rank")]
    found = (whole(text) for text in words)
    return list(dict.fromkeys(rank for rank in found if rank is not None))


def events_context(request: HtmxRequest, *, job: Job) -> Context:
    has_deliveries = Exists(
        Delivery.objects.filter(job=job)
    )  # evaluated once: most jobs have no webhook, and need no query more
    events = list(job.events.select_related("user").annotate(has_deliveries=has_deliveries).order_by("-id")[:EVENTS])
    deliveries = job.deliveries.select_related("webhook").defer("payload").order_by("-id")[:DELIVERIES]
    return {"events": events, "deliveries": list(deliveries) if events and events[0].has_deliveries else []}


def checkpoints_context(request: HtmxRequest, *, job: Job) -> Context:
    rows = list(checkpoints.newest_first(job)[: CHECKPOINTS + 1])
    return {
        "checkpoints": rows[:CHECKPOINTS],
        "has_more_checkpoints": len(rows) > CHECKPOINTS,
        "all_checkpoints": f"muster checkpoints {job.pk}",
        "may_start": bool(rows) and may(request.user, Act.SUBMIT, job.team),
    }


def about_context(request: HtmxRequest, *, job: Job) -> Context:
    return {
        "command": shlex.join(job.command),
        "cli": f"muster logs -f {job.pk}",
        "secrets": job.spec.get("secrets", []),
        "team_secrets": _team_secrets(job),
        "pods": plan.pods_of(job),
        "template": job.template,
        "changed_since": _changed_since(job),
        "env": sorted(job.spec.get("env", {}).items()),
        "env_text": "\n".join(f"{name}={value}" for name, value in sorted(job.spec.get("env", {}).items())),
    }


def _changed_since(job: Job) -> list[str]:
    """Return what its queue says otherwise today, of what the job was submitted with."""
    return templates.changes(job.template.content, templates.content(job.queue)) if job.template else []


def _team_secrets(job: Job) -> list[tuple[str, int | None]]:
    """Return the team's secrets that the job names, each with the version that its newest attempt began with."""
    names = mounts(job.spec.get("team_secrets", []))
    row = job.attempts.filter(number=job.attempt).only("secrets").first() if names else None
    versions = (row.secrets if row else None) or {}
    return [(name, versions.get(name)) for name in names]


def _history(job: Job) -> QuerySet[JobEvent]:
    """Return its steps and notes (jobs/ingest/notes.py: a few per attempt at most)."""
    return JobEvent.objects.filter(job=job, kind__in=("step", "note")).order_by("id")


def _was_retried(job: Job) -> bool:
    return job.failures > 0 and job.attempt > 1 and not job.is_finished


PARTS = {
    "state": Part("jobs/_state.html", state_context),
    "ranks": Part("jobs/_ranks.html", ranks_context),
    "charts": Part("jobs/_charts.html", charts_context),
    "log": Part("jobs/_log.html", opening_context),
    "checkpoints": Part("jobs/_checkpoints.html", checkpoints_context),
    "events": Part("jobs/_events.html", events_context),
    "about": Part("jobs/_about.html", about_context),
}
