"""How a request is turned away before or beside its view: problem details for programs, a page for people.

No word about the inside: the cause is in the server's log.
"""

import sys
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from .database import AWAY, RETRY_SECONDS
from .errors import Problem

PROGRAMS = ("/api/v1/", "/agent/v1/", "/healthz", "/readyz", "/live")
TITLES = {
    400: "The request makes no sense",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "This method is not known here",
    408: "Too slow",
    413: "Too large",
    414: "The address is too long",
    429: "Too many requests",
    431: "The headers are too long",
    500: "Something broke on our side",
    503: "Something does not answer",
}


def refusal(
    request: HttpRequest, *, status: int, detail: str, retry_after: int = 0, problem: Problem | None = None
) -> HttpResponse:
    """`detail` says what to do next. It is shown as text."""
    answer = _problem(status, detail, problem) if is_program(request) else _page(request, status, detail)
    if retry_after:
        answer["Retry-After"] = str(retry_after)
    return answer


def is_program(request: HttpRequest) -> bool:
    return request.path_info.startswith(PROGRAMS)


def _problem(status: int, detail: str, problem: Problem | None = None) -> HttpResponse:
    body: dict[str, Any] = {"type": "about:blank", "title": TITLES[status], "status": status, "detail": detail}
    if problem is not None:
        body["errors"] = [{"field": problem.field, "value": problem.value, "message": problem.message}]
    return JsonResponse(body, status=status, content_type="application/problem+json")


def _page(request: HttpRequest, status: int, detail: str) -> HttpResponse:
    context = {"code": status, "title": TITLES[status], "detail": detail}
    return render(request, "refused.html", context, status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _stop(request, 400, "the address, a header or the body could not be read; nothing was changed")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _stop(request, 404, "there is nothing here that you may see")


def broken(request: HttpRequest) -> HttpResponse:
    """Django calls this while it handles the exception. A database that is away breaks nothing: it may be there again soon."""
    if isinstance(sys.exception(), AWAY):
        detail = "the database does not answer; nothing is lost, running jobs go on. Try again in a moment"
        return refusal(request, status=503, detail=detail, retry_after=RETRY_SECONDS)
    return _stop(request, 500, "the cause is in the server's log; running jobs are not affected")


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    said = str(exception) or "you may look at this, but not change it"
    return _stop(request, 403, said, exception=said)


def _stop(request: HttpRequest, status: int, detail: str, **context: Any) -> HttpResponse:
    """Pages have a template of their own for each of these."""
    if is_program(request):
        return _problem(status, detail)
    return render(request, f"{status}.html", context, status=status)
