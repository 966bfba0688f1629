"""/client/: the client for this server's version, for everybody who reaches the server. It holds no secret."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from common.client_wheel import wheel

KEPT_SECONDS = 300  # by browsers and proxies; an upgrade brings another name anyway


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Return a page of links as `pip install --find-links` reads it."""
    return render(request, "client.html", {"wheel": wheel(), "address": request.build_absolute_uri()})


@require_safe
def file(request: HttpRequest, name: str) -> HttpResponse:
    made = wheel()
    if name != made.name:
        raise Http404(f"this server has {made.name}")
    answer = HttpResponse(made.data, content_type="application/zip")
    answer["Content-Disposition"] = f'attachment; filename="{made.name}"'
    answer["Cache-Control"] = f"public, max-age={KEPT_SECONDS}"
    return answer
