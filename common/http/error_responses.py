"""Refuse requests outside of views: problem details for programs, an HTML page for people.

An htmx request counts as a program's: static/outcome.js shows the detail on the open page, and a whole page is never
swapped into part of another. A redirect would be followed and swapped in, so it becomes HX-Redirect. Internals are
never revealed: the cause is in the server's log.
"""

import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseRedirectBase
from django.shortcuts import render, resolve_url
from django.utils.cache import patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme

from ..db.db_connections import AWAY, RETRY_SECONDS
from ..errors import MusterError, Problem, bounded
from ..telemetry import measures

# Only the pages of these ask who is signed in. The others may be made outside of the middlewares: a connection to the
# database that they took would never be given back.
AFTER_THE_PERSON_IS_KNOWN = (403, 404)
PROGRAMS = ("/api/v1/", "/agent/v1/", "/healthz", "/readyz", "/live")
TITLES = {
    400: "The request cannot be understood",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "This method is not supported",
    408: "Too slow",
    409: "Not possible now",
    413: "Too large",
    414: "The address is too long",
    422: "Not accepted",
    429: "Too many requests",
    431: "The headers are too long",
    500: "Something went wrong on the server",
    503: "A service does not respond",
}


def refusal(
    request: HttpRequest, *, status: int, detail: str, retry_after: int = 0, problem: Problem | None = None
) -> HttpResponse:
    """Return the response for a refused request; `detail` says what to do next and is shown as text."""
    detail = bounded(detail)
    wants_problem = is_program(request) or is_fragment(request)
    answer = problem_details(status, detail, problem) if wants_problem else _page(request, status, detail)
    if retry_after:
        answer["Retry-After"] = str(retry_after)
    return answer


def is_program(request: HttpRequest) -> bool:
    return request.path_info.startswith(PROGRAMS)


def is_fragment(request: HttpRequest) -> bool:
    return request.headers.get("HX-Request") == "true"


def problem_details(status: int, detail: str, problem: Problem | None = None) -> HttpResponse:
    body: dict[str, Any] = {"type": "about:blank", "title": TITLES[status], "status": status, "detail": detail}
    if problem is not None:
        body["errors"] = [{"field": problem.field, "value": problem.value, "message": problem.message}]
    return JsonResponse(body, status=status, content_type="application/problem+json")


def _page(request: HttpRequest, status: int, detail: str) -> HttpResponse:
    # Refused before the person is known, or because the database is away: the page asks for neither.
    context = {"code": status, "title": TITLES[status], "detail": detail, "is_plain": True}
    return render(request, "refused.html", context, status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _stop(request, 400, "the address, a header or the body is not valid; nothing was changed")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _stop(request, 404, "it does not exist, or you may not see it")


def broken(request: HttpRequest) -> HttpResponse:
    """Handle errors for Django, which calls this while it handles the exception.

    An unavailable database is answered with 503, not 500: it may be back soon.
    """
    if isinstance(sys.exception(), AWAY):
        detail = "the database does not respond; nothing is lost, and running jobs continue. Try again in a moment"
        return refusal(request, status=503, detail=detail, retry_after=RETRY_SECONDS)
    return _stop(request, 500, "the server's log has the cause; running jobs are not affected")


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    if isinstance(exception.__cause__, MusterError):
        measures.failed("page", exception.__cause__)
    detail = bounded(str(exception)) or "you may look at this, but not change it"
    return _stop(request, 403, detail, exception=detail)


def _stop(request: HttpRequest, status: int, detail: str, **context: Any) -> HttpResponse:
    """Return problem details or a page; for pages each of these statuses has its own template."""
    if is_program(request) or is_fragment(request):
        return problem_details(status, detail)
    is_plain = status not in AFTER_THE_PERSON_IS_KNOWN
    return render(request, f"{status}.html", {"is_plain": is_plain, **context}, status=status)


def forged(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django's CSRF_FAILURE_VIEW."""
    if is_program(request) or is_fragment(request):
        return problem_details(
            403, "you signed in or out since this page was opened; nothing was changed; reload it and try again"
        )
    return render(request, "403_csrf.html", {"is_plain": True}, status=403)


class Fragments:
    """Keep redirects from htmx: the browser follows them invisibly, and the final page would land inside this one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return _for_fragment(request, self.get_response(request))


def _for_fragment(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    if not is_fragment(request) or not isinstance(response, HttpResponseRedirectBase):
        return response
    sign_in = resolve_url(settings.LOGIN_URL)
    if urlsplit(response.url).path == sign_in:
        answer = problem_details(401, "your session has ended; sign in again")
        answer["HX-Redirect"] = f"{sign_in}?{urlencode(_way_back(request))}"
    else:
        answer = HttpResponse(status=204, headers={"HX-Redirect": response.url})
    answer.cookies = response.cookies
    patch_vary_headers(answer, ["HX-Request"])
    return answer


def _way_back(request: HttpRequest) -> dict[str, str]:
    """Return the sign-in page's parameters: the way back, and whether the request was a change.

    The way back leads to the open page, not to the requested fragment.
    """
    parameters = {"ended": "look" if request.method in ("GET", "HEAD") else "act"}
    page = request.headers.get("HX-Current-URL", "")
    if url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure()):
        parts = urlsplit(page)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        if url_has_allowed_host_and_scheme(path, None):  # http://here//elsewhere/ is ours, //elsewhere/ is not
            parameters[REDIRECT_FIELD_NAME] = path
    return parameters
