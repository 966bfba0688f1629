"""/jobs/<id>/logs: the log of one rank, one replica or all, its live end, and all of it as text."""

import re
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from accounts.permissions import Act, may
from common.errors import InvalidInput
from common.http.streaming import text_response
from common.text import plain
from jobs.analysis import failures
from jobs.core.cursor import Cursor
from jobs.core.lifecycle import Phase
from jobs.core.verdict import place
from jobs.logs import reader, search
from jobs.logs.reader import EVERYBODY, LAUNCHER, LogSource
from jobs.models import Job, Rank

from .log_text import shortened
from .responses import Context, HtmxRequest, answer, readable_job, target_id, tell_address, unchanged, whole

TAIL = 500
MOST_LINE = 2**31 - 1
CONTEXT_LINES = 20  # before a line that a link leads to
MOST_ASKED = 200  # characters to search for
MAX_LINKS = 64  # ranks, or replicas, with a link of their own; above that an input field takes the number or name


@dataclass(frozen=True)
class Choice:
    """A link to somebody's log."""

    word: str
    url: str
    is_chosen: bool


@login_required
@require_safe
def log_page(request: HtmxRequest, pk: int) -> HttpResponse:
    """Return the page, its pane, or the lines that a follower has not seen yet."""
    job = readable_job(request, pk=pk)
    if target_id(request) == "log-tail":
        return answer(request, template="jobs/_log_lines.html", context=_followed(request, job=job))
    if target_id(request) == "log-choices":
        source, attempt = chosen(request, job=job)
        pane = _pane(request, job, source, attempt=attempt)
        if str(len(pane["log_choices"])) == request.GET.get("known"):
            return unchanged()  # the links, and the focus on one of them, stay as they are
        return answer(request, template="jobs/_log_choices.html", context=pane)
    template = "jobs/_log.html" if request.htmx else "jobs/logs.html"
    return _with_address(answer(request, template=template, context=log_context(request, job=job)), request, job=job)


def _with_address(response: HttpResponse, request: HtmxRequest, *, job: Job) -> HttpResponse:
    """Let the address of a job's page say whose log is open, so that it can be reloaded and sent to somebody."""
    now = {}
    if text := _asked(request):
        now = {"q": text, **({"re": "1"} if "re" in request.GET else {})}
    if line := whole(request.GET.get("line"), most=MOST_LINE):
        now["line"] = str(line)
    source, attempt = chosen(request, job=job)
    now |= _query(source) | ({"attempt": str(attempt)} if attempt != job.attempt else {})
    tell_address(response, request, job=job, names=("rank", "replica", "attempt", "line", "q", "re"), now=now)
    return response


def opening_context(request: HtmxRequest, *, job: Job) -> Context:
    """Return the log as a job's page opens it: where the attempt failed and the URL says nothing else, at what failed.

    The end of everybody's log is then the launchers' own report.
    """
    source, attempt = chosen(request, job=job)
    if asked := _asked(request):
        return _pane(request, job, source, attempt=attempt) | _found(request, job=job, asked=asked)
    is_over = job.phase == Phase.FAILED or attempt != job.attempt
    if source == EVERYBODY and is_over and (failure := failures.stored(job, attempt)):
        rank = failure.traceback_rank if failure.traceback_rank is not None else failure.rank
        source = LogSource(rank) if rank is not None else LogSource(replica=place(job.role_views, failure.replica))
    return _opened(request, job, source, attempt=attempt)


def log_context(request: HtmxRequest, *, job: Job) -> Context:
    """Return the live end of the log, or a page of lines after the cursor in the URL."""
    source, attempt = chosen(request, job=job)
    return _opened(request, job, source, attempt=attempt)


def _opened(request: HtmxRequest, job: Job, source: LogSource, *, attempt: int) -> Context:
    only = attempt if attempt != job.attempt else None
    cursor, line = request.GET.get("cursor", ""), whole(request.GET.get("line"), most=MOST_LINE)
    page = _after(job, source=source, cursor=cursor, only=only) if cursor else None
    if page is None and line:
        page = reader.around(job=job, source=source, attempt=attempt, line=line, before=CONTEXT_LINES, limit=TAIL)
    if page is not None:
        return _pane(request, job, source, attempt=attempt) | {"lines": shortened(page.lines), "cursor": page.cursor, "is_reading": True,
            "has_more": page.has_more, "is_log_live": False, "at_line": None if cursor else line}  # fmt: skip
    page = reader.read(job=job, source=source, tail=TAIL, attempt=only)
    return _pane(request, job, source, attempt=attempt) | _lines(job, page, attempt=attempt)


def _after(job: Job, *, source: LogSource, cursor: str, only: int | None) -> reader.LogPage | None:
    """Return the next lines; None for a malformed cursor, which is ignored."""
    try:
        return reader.read(job=job, source=source, cursor=cursor, limit=TAIL, attempt=only)
    except InvalidInput:
        return None


def _followed(request: HtmxRequest, *, job: Job) -> Context:
    """Return lines up to the present; if they exceed a page, the last of them, with a link to the skipped ones."""
    source, attempt = chosen(request, job=job)
    only = attempt if attempt != job.attempt else None
    cursor = request.GET.get("cursor", "")
    try:
        page, skipped = reader.catch_up(job=job, source=source, cursor=cursor, limit=TAIL, attempt=only)
    except InvalidInput:
        page, skipped = reader.read(job=job, source=source, tail=TAIL, attempt=only), 0
    around = {
        "job": job,
        "log_url_and": _and(_address(job, source, only)),
        "is_elastic": job.min_nodes is not None,
        "is_old": only is not None,
        "attempt": attempt,
    }
    return around | _lines(job, page, attempt=attempt) | {"skipped": skipped, "skipped_from": cursor}


def _lines(job: Job, page: reader.LogPage, *, attempt: int) -> Context:
    is_live = attempt == job.attempt and not page.is_complete
    return {"lines": shortened(page.lines), "cursor": page.cursor, "is_log_live": is_live}


def _pane(request: HtmxRequest, job: Job, source: LogSource, *, attempt: int) -> Context:
    """Return the context around the lines: whose log it is, and which others there are."""
    numbers = list(
        Rank.objects.filter(job=job, attempt=attempt).order_by("rank").values_list("rank", flat=True)[: MAX_LINKS + 1]
    ) or list(range(min(job.world_size, MAX_LINKS + 1)))
    only = attempt if attempt != job.attempt else None
    return {
        "job": job,
        "attempt": attempt,
        "asked_for": _query(source),
        "log_url": _address(job, source, only),
        "log_url_and": _and(_address(job, source, only)),
        "file_url": _address(job, source, attempt, route="job-logs-file"),
        "first_url": _and(_address(job, source, only)) + urlencode({"cursor": Cursor(attempt).encode()}),
        "is_elastic": job.min_nodes is not None,
        "log_choices": _choices(job, numbers if len(numbers) <= MAX_LINKS else [], source=source, only=only),
        "may_get_ranks": not job.world_size and not job.is_finished and only is None,
        "has_every_rank": len(numbers) <= MAX_LINKS,
        "rank_value": source.rank if source.rank != LAUNCHER else None,
        "is_old": only is not None,
        "can_delete_log": job.is_finished
        and job.logs_collected_at is None
        and may(request.user, Act.CONTROL, job.team),
    }


def chosen(request: HtmxRequest, *, job: Job) -> tuple[LogSource, int]:
    """Return (whose lines, attempt) from the URL; malformed values are ignored."""
    text = request.GET.get("rank", "")
    rank = LAUNCHER if text in ("launcher", "-1") else whole(text)
    attempt = whole(request.GET.get("attempt"))
    source = LogSource(rank, place(job.role_views, request.GET.get("replica", "")))
    return source, attempt if attempt is not None and 1 <= attempt <= job.attempt else job.attempt


def _query(source: LogSource) -> dict[str, str]:
    """Return a choice as written in the URL."""
    rank = {} if source.rank is None else {"rank": "launcher" if source.rank == LAUNCHER else str(source.rank)}
    return rank | ({"replica": "{}-{}".format(*source.replica)} if source.replica else {})


def _address(job: Job, source: LogSource, attempt: int | None, *, route: str = "job-logs") -> str:
    asked = _query(source) | ({} if attempt is None else {"attempt": str(attempt)})
    return reverse(route, args=[job.pk]) + (f"?{urlencode(asked)}" if asked else "")


def _and(address: str) -> str:
    """Return the beginning of an address with one more parameter."""
    return address + ("&" if "?" in address else "?")


def _choices(job: Job, numbers: list[int], *, source: LogSource, only: int | None) -> list[Choice]:
    """Return everybody, the replicas where ranks alone do not tell them apart, the ranks, and what no rank printed."""
    roles = job.role_views
    has_own = len(roles) > 1 and sum(one.replicas for one in roles) <= MAX_LINKS
    replicas = [(one.name, index) for one in roles for index in range(one.replicas)] if has_own else []
    offered = [
        ("All", LogSource()),
        *(("{}-{}".format(*replica), LogSource(replica=replica)) for replica in replicas),
        *((str(number), LogSource(number)) for number in numbers),
        *([] if has_own else [("Launcher", LogSource(LAUNCHER))]),
    ]
    return [Choice(word, _address(job, one, only), one == source) for word, one in offered]


@login_required
@require_safe
def log_find(request: HtmxRequest, pk: int) -> HttpResponse:
    """Return the lines of the whole log that contain the given text, in the pane or as a page of its own."""
    job = readable_job(request, pk=pk)
    asked = _asked(request)
    if not asked:
        return log_page(request, pk)
    source, attempt = chosen(request, job=job)
    context = _pane(request, job, source, attempt=attempt) | _found(request, job=job, asked=asked)
    template = "jobs/_log.html" if request.htmx else "jobs/logs.html"
    return _with_address(answer(request, template=template, context=context), request, job=job)


def _asked(request: HtmxRequest) -> str:
    """Return the text to search for."""
    return request.GET.get("q", "").replace("\0", "").strip()[:MOST_ASKED]


def _found(request: HtmxRequest, *, job: Job, asked: str) -> Context:
    source, attempt = chosen(request, job=job)
    start, is_regex, problem = request.GET.get("start", ""), "re" in request.GET, ""
    where: dict[str, Any] = {
        "job": job,
        "text": asked,
        "by": request.user.pk,
        "source": source,
        "attempt": attempt,
        "is_regex": is_regex,
    }
    try:
        search.matcher(asked, is_regex=is_regex)
        try:
            found = search.search(**where, start=start)
        except InvalidInput:  # a malformed start: search from the beginning
            found = search.search(**where)
    except InvalidInput as error:
        found, problem = search.SearchResult([], ""), " ".join(one.message for one in error.problems)
    shown = shortened([one.line for one in found.lines])
    lines = [search.FoundLine(one.number, line) for one, line in zip(found.lines, shown, strict=True)]
    return {
        "found": found._replace(lines=lines),
        "asked": asked,
        "is_regex": is_regex,
        "problem": problem,
        "start": start,
        "is_elastic": job.min_nodes is not None,
        "find_url": _and(_address(job, source, attempt, route="job-logs-find"))
        + urlencode({"q": asked, **({"re": "1"} if is_regex else {})}),
        "log_url": _address(job, source, attempt),
    }


@login_required
@require_safe
def log_file(request: HtmxRequest, pk: int) -> StreamingHttpResponse:
    """Stream all lines of one attempt as text. Terminal colours are left out, as on the page."""
    job = readable_job(request, pk=pk)
    source, attempt = chosen(request, job=job)
    response = text_response(request, search.stream_text(job=job, source=source, attempt=attempt, shown=plain))
    which = "-".join(f"{name}-{value}" for name, value in _query(source).items()) or "all"
    name = re.sub(r"[^a-zA-Z0-9_.-]", "-", job.name)
    response["Content-Disposition"] = f'attachment; filename="{name}-{attempt}-{which}.txt"'
    patch_vary_headers(response, ["Cookie"])
    return response
