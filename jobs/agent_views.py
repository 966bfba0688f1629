"""/agent/v1: where agents fetch code and bring news. Their token is checked before anything else is looked at."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from .agent_answers import Answer, answer, refused
from .agent_tokens import AgentIdentity, bearer
from .batches import MAX_BATCH_BYTES
from .models import Job


def _identity(request: HttpRequest) -> AgentIdentity | None:
    return bearer(request.headers.get("Authorization", ""))


def _response(one: Answer) -> HttpResponse:
    return JsonResponse(one.content, status=one.status, content_type=one.kind, headers=one.headers)


def _refused(status: int, title: str) -> HttpResponse:
    return _response(refused(status, title))


@require_GET
def workspace(request: HttpRequest) -> HttpResponse:
    identity = _identity(request)
    if identity is None:
        return _refused(401, "this is not an agent's token")
    job = Job.objects.select_related("workspace").filter(pk=identity.job, uid=identity.run.partition("-")[2]).first()
    if job is None or job.is_finished:
        return _refused(403, "this job is over")
    if job.workspace is None:
        return HttpResponse(status=204)
    # Whole, not streamed: the limit of a workspace bounds it, and a file's iterator would be gathered here anyway.
    with job.workspace.file.open("rb") as file:
        return HttpResponse(file.read(), content_type="application/gzip")


@csrf_exempt  # a bearer token, no cookie: nothing a browser could be tricked into sending
@require_POST
def batches(request: HttpRequest) -> HttpResponse:
    """Where no agent_door stands in front (another server, tests); there it answers, with the same words."""
    identity = _identity(request)
    if identity is None:
        return _refused(401, "this is not an agent's token")
    if int(request.headers.get("Content-Length") or 0) > MAX_BATCH_BYTES:
        return _refused(413, f"a batch has at most {MAX_BATCH_BYTES} bytes")
    return _response(answer(identity, request.body))
