"""/jobs/<id>/logs: the log of one rank or of all, its live end, and all of it as text."""

import re

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from accounts.permissions import Act, may
from common.errors import InvalidInput
from common.streaming import text_response
from common.text import plain
from jobs.logs import reader, search
from jobs.models import Job, Rank

from .parts import Context, Request, answer, readable_job, whole

TAIL = 500
LAUNCHER = -1
MAX_LINKS = 64  # ranks with a link of their own; above that an input field takes the number


@login_required
@require_safe
def log_page(request: Request, pk: int) -> HttpResponse:
    """Return the page, its pane, or the lines that a follower has not seen yet."""
    job = readable_job(request, pk=pk)
    if request.htmx and request.htmx.target == "log-tail":
        return answer(request, template="jobs/_log_lines.html", context=_followed(request, job=job))
    template = "jobs/_log.html" if request.htmx else "jobs/logs.html"
    return answer(request, template=template, context=log_context(request, job=job))


def log_context(request: Request, *, job: Job) -> Context:
    """Return the live end of the log, or a page of lines after the cursor in the URL."""
    rank, attempt = chosen(request, job=job)
    only = attempt if attempt != job.attempt else None
    cursor = request.GET.get("cursor", "")
    page = _after(job, rank=rank, cursor=cursor, only=only) if cursor else None
    if page is not None:
        return _pane(request, job, rank, attempt) | {"lines": page.lines, "cursor": page.cursor, "is_reading": True,
            "has_more": page.has_more, "is_log_live": False}  # fmt: skip
    page = reader.read(job=job, rank=rank, tail=TAIL, attempt=only)
    return _pane(request, job, rank, attempt) | _lines(job, page, attempt=attempt)


def _after(job: Job, *, rank: int | None, cursor: str, only: int | None) -> reader.LogPage | None:
    """Return the next lines; None for a malformed cursor, which is ignored."""
    try:
        return reader.read(job=job, rank=rank, cursor=cursor, limit=TAIL, attempt=only)
    except InvalidInput:
        return None


def _followed(request: Request, *, job: Job) -> Context:
    """Return lines up to the present; if they exceed a page, the last of them, with a link to the skipped ones."""
    rank, attempt = chosen(request, job=job)
    only = attempt if attempt != job.attempt else None
    cursor = request.GET.get("cursor", "")
    try:
        page, skipped = reader.catch_up(job=job, rank=rank, cursor=cursor, limit=TAIL, attempt=only)
    except InvalidInput:
        page, skipped = reader.read(job=job, rank=rank, tail=TAIL, attempt=only), 0
    around = {"job": job, "rank_value": _value(rank), "is_old": only is not None, "attempt": attempt}
    return around | _lines(job, page, attempt=attempt) | {"skipped": skipped, "skipped_from": cursor}


def _lines(job: Job, page: reader.LogPage, *, attempt: int) -> Context:
    is_live = attempt == job.attempt and not page.is_complete
    return {"lines": page.lines, "cursor": page.cursor, "is_log_live": is_live}


def _pane(request: Request, job: Job, rank: int | None, attempt: int) -> Context:
    """Return the context around the lines: whose log it is, and which others there are."""
    numbers = list(
        Rank.objects.filter(job=job, attempt=attempt).order_by("rank").values_list("rank", flat=True)[: MAX_LINKS + 1]
    )
    return {
        "job": job,
        "attempt": attempt,
        "rank_value": _value(rank),
        "log_choices": _choices(numbers if len(numbers) <= MAX_LINKS else []),
        "has_every_rank": len(numbers) <= MAX_LINKS,
        "is_old": attempt != job.attempt,
        "can_delete_log": job.is_finished
        and job.logs_collected_at is None
        and may(request.user, Act.CONTROL, job.team),
    }


def chosen(request: Request, *, job: Job) -> tuple[int | None, int]:
    """Return (rank or None for all, attempt) from the URL; malformed values are ignored."""
    text = request.GET.get("rank", "")
    rank = LAUNCHER if text in ("launcher", "-1") else whole(text)
    attempt = whole(request.GET.get("attempt"))
    return rank, attempt if attempt is not None and 1 <= attempt <= job.attempt else job.attempt


def _value(rank: int | None) -> str:
    """Return a choice of rank as written in the URL."""
    return "" if rank is None else "launcher" if rank == LAUNCHER else str(rank)


def _choices(numbers: list[int]) -> list[tuple[str, str]]:
    return [("", "All"), *((str(number), str(number)) for number in numbers), ("launcher", "Launcher")]


@login_required
@require_safe
def log_find(request: Request, pk: int) -> HttpResponse:
    """Return the lines of the whole log that contain the given text, in the pane or as a page of its own."""
    job = readable_job(request, pk=pk)
    asked = request.GET.get("q", "").replace("\0", "").strip()[:200]
    if not asked:
        return log_page(request, pk)
    context = _pane(request, job, *chosen(request, job=job)) | _found(request, job=job, asked=asked)
    return answer(request, template="jobs/_log.html" if request.htmx else "jobs/logs.html", context=context)


def _found(request: Request, *, job: Job, asked: str) -> Context:
    rank, attempt = chosen(request, job=job)
    start = request.GET.get("start", "")
    try:
        found = search.search(job=job, text=asked, by=request.user.pk, rank=rank, attempt=attempt, start=start)
    except InvalidInput:  # a malformed start: search from the beginning
        found = search.search(job=job, text=asked, by=request.user.pk, rank=rank, attempt=attempt)
    where = {name: value for name, value in (("rank", _value(rank)), ("attempt", str(attempt))) if value}
    return {
        "found": found,
        "asked": asked,
        "start": start,
        "find_url": f"{reverse('job-logs-find', args=[job.pk])}?{urlencode({**where, 'q': asked})}",
        "log_url": f"{reverse('job-logs', args=[job.pk])}?{urlencode(where)}",
    }


@login_required
@require_safe
def log_file(request: Request, pk: int) -> StreamingHttpResponse:
    """Stream all lines of one attempt as text. Terminal colours are left out, as on the page."""
    job = readable_job(request, pk=pk)
    rank, attempt = chosen(request, job=job)
    response = text_response(request, search.stream_text(job=job, rank=rank, attempt=attempt, shown=plain))
    which = {"": "all", "launcher": "launcher"}.get(_value(rank), f"rank-{rank}")
    name = re.sub(r"[^a-zA-Z0-9_.-]", "-", job.name)
    response["Content-Disposition"] = f'attachment; filename="{name}-{attempt}-{which}.txt"'
    patch_vary_headers(response, ["Cookie"])
    return response
