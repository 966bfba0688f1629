"""/jobs/<id>/code: a job's code, one file of it, and its differences from the previous job's or any other's."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.views.decorators.http import require_safe

from common.errors import InvalidInput
from jobs.models import Job
from workspaces import reading
from workspaces.difference import Change, Difference
from workspaces.manifest import Entry

from .responses import Context, HtmxRequest, answer, readable_job, whole

SHOWN_FILES = 2000
SHOWN_LINES = 10_000
SHOWN_CHARACTERS = 1_000_000
OFFERED_JOBS = 20
LOOKED_BACK = 50  # jobs among which the previous one is searched
_SUFFIX = re.compile(r"-[0-9a-f]{6}\Z")  # of a name that Muster chose (services.default_name)
# Control characters of terminals and browsers are shown as symbols: code must look like what it is.
_SIGNS = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"},
    0x7F: "\u2421",
    **{
        code: f"[U+{code:04X}]"
        for code in (*range(0x80, 0xA0), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    },
}
_TONES = {"+": "add", "-": "del", "@": "at"}


@dataclass(frozen=True)
class ShownFile:
    """One file of the page: its lines, or why there are none."""

    path: str
    size: int
    lines: list[str]
    why: str = ""


@login_required
@require_safe
def code(request: HtmxRequest, pk: int) -> HttpResponse:
    job = readable_job(request, pk=pk)
    context: Context = {"job": job, "others": _with_code(request, job)[:OFFERED_JOBS]}
    if job.workspace is not None:
        try:
            with reading.turn(request.user):
                context |= _code_context(request, job=job)
        except (InvalidInput, reading.DamagedStore) as error:
            context["notice"] = str(error)
    return answer(request, template="jobs/code.html", context=context)


def _code_context(request: HtmxRequest, *, job: Job) -> Context:
    assert job.workspace is not None
    entries = reading.entries(job.workspace)
    if path := request.GET.get("file"):
        return {"shown": _shown(job, entries, path=path)}
    other = _other(request, job=job)
    return {
        "entries": list(islice(entries, SHOWN_FILES)),
        "hidden": sum(1 for _ in entries),
        "other": other,
        "difference": _difference(job, other) if other else None,
    }


def _shown(job: Job, entries: Iterable[Entry], *, path: str) -> ShownFile:
    assert job.workspace is not None
    entry = next((one for one in entries if one.path == path), None)
    if entry is None:
        raise Http404(f"the code of job {job.name} does not contain {path}")
    if not entry.is_file:
        return ShownFile(path, 0, [], f"This is a link to {entry.target}.")
    if not entry.size:
        return ShownFile(path, 0, [])
    data = reading.content(job.workspace, entry)
    try:
        text = data.decode()
        lines = _visible(text[:SHOWN_CHARACTERS]).split("\n") if "\0" not in text else []
    except UnicodeDecodeError:
        lines = []
    if not lines:
        return ShownFile(path, entry.size, [], "This file is not text.")
    is_cut = len(lines) > SHOWN_LINES or len(text) > SHOWN_CHARACTERS
    cut = (
        f"Only the first {SHOWN_LINES} lines, of at most {SHOWN_CHARACTERS:,} characters, are shown." if is_cut else ""
    )
    return ShownFile(path, entry.size, lines[:SHOWN_LINES], cut)


def _other(request: HtmxRequest, *, job: Job) -> Job | None:
    """Return the job to compare with: the one in the URL, else the previous one of the same name."""
    asked = request.GET.get("with")
    if asked is None:
        stem = _SUFFIX.sub("", job.name)
        before = _with_code(request, job).filter(pk__lt=job.pk, name__startswith=stem)[:LOOKED_BACK]
        return next((one for one in before if _SUFFIX.sub("", one.name) == stem), None)
    number = whole(asked)
    if number is None:
        return None
    other = readable_job(request, pk=number)
    return other if other.workspace_id else None


def _with_code(request: HtmxRequest, job: Job) -> QuerySet[Job]:
    """Return other jobs of the team whose code can be read, newest first."""
    jobs = Job.objects.readable_by(request.user).filter(team=job.team).exclude(pk=job.pk)
    return jobs.exclude(workspace=None).exclude(workspace__manifest="").select_related("workspace").order_by("-pk")


def _difference(job: Job, other: Job) -> Context:
    assert job.workspace is not None and other.workspace is not None
    found: Difference = reading.compare(other.workspace, job.workspace)
    hidden = sum(max(0, len(some) - SHOWN_FILES) for some in (found.added, found.removed, found.changed))
    return {
        "added": found.added[:SHOWN_FILES],
        "removed": found.removed[:SHOWN_FILES],
        "changed": [(change.path, change.why, _toned(change)) for change in found.changed[:SHOWN_FILES]],
        "hidden": hidden,
        "is_empty": not found,
    }


def _toned(change: Change) -> list[tuple[str, str]]:
    lines = _visible(change.lines).split("\n") if change.lines else []
    return [(_TONES.get(line[:1], ""), line) for line in lines]


def _visible(text: str) -> str:
    return text.replace("\r\n", "\n").translate(_SIGNS)
