"""Shared by the pages: find a job that the user may read, and answer with a page or one part of it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, render
from django.utils.cache import patch_vary_headers
from django_htmx.middleware import HtmxDetails

from accounts.models import User
from common.http.compression import compressed
from common.text import inert
from jobs.models import Job

Context = dict[str, Any]
LARGEST = 2**31 - 1  # of a rank, an attempt, a line or a page; the limit of their columns


class HtmxRequest(HttpRequest):
    """A request to a page behind `login_required` and the htmx middleware; for types only."""

    user: User
    htmx: HtmxDetails


@dataclass(frozen=True)
class Part:
    """A piece of a page that can be fetched alone. Its key in a table of parts is the id of its element."""

    template: str
    context: Callable[..., Context]


def readable_job(request: HtmxRequest, *, pk: int) -> Job:
    """Return the job; 404 if the user may not read it, so that its existence is not revealed."""
    jobs = Job.objects.readable_by(request.user).select_related("team", "queue", "user", "workspace", "template")
    return get_object_or_404(jobs, pk=pk)


def target_id(request: HtmxRequest) -> str:
    """Return the id of the element that an htmx request is to fill, empty for a whole page. htmx sends `section#ranks`."""
    return (request.htmx.target or "").rpartition("#")[2] if request.htmx else ""


def named_part(request: HtmxRequest, *, parts: Mapping[str, Part]) -> Part | None:
    """Return the part that an htmx request asks for; None means the whole page."""
    return parts.get(target_id(request))


def answer(request: HtmxRequest, *, template: str, context: Context, status: int = 200) -> HttpResponse:
    """Render an answer that is never cached.

    One URL has several answers, and neither a proxy nor the back button may serve one in place of another.
    """
    response = render(request, template, context, status=status)
    response.content = inert(response.content)
    return compressed(uncached(response), request)


def unchanged() -> HttpResponse:
    """Answer that nothing has changed: htmx leaves the page as it is."""
    return uncached(HttpResponse(status=204))


def uncached(response: HttpResponse) -> HttpResponse:
    patch_vary_headers(response, ["HX-Request", "HX-Target", "Cookie", "Accept-Encoding"])
    response["Cache-Control"] = "private, no-store"
    return response


def tell_address(
    response: HttpResponse, request: HtmxRequest, *, job: Job, names: Iterable[str], now: Mapping[str, str]
) -> None:
    """Let the address of a job's open page say what it shows, so that it can be reloaded and sent to somebody.

    `names`: the parameters that the answer decides on; `now`: what they are, the others are taken out.
    """
    path, _, query = (request.htmx.current_url_abs_path or "").partition("?")
    if path == job.get_absolute_url():
        asked = QueryDict(query, mutable=True)
        for name in names:
            asked.pop(name, None)
        for name, value in now.items():
            asked[name] = value
        response["HX-Replace-Url"] = path + (f"?{asked.urlencode()}" if asked else "")


def whole(value: str | None, *, most: int = LARGEST) -> int | None:
    """Return a number from a query string that a column can hold; anything else counts as not given."""
    text = (value or "").strip()
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
    return number if number is not None and number <= most else None
