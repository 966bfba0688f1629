"""/agent/v1: where agents fetch code and bring news. Their token is checked before anything else is looked at."""

import time

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from controlplane import crash
from controlplane.errors import InvalidInput, NotAllowed

from . import ingest
from .agent_tokens import AgentIdentity, read
from .batches import MAX_BATCH_BYTES, parse
from .models import Job


def _identity(request: HttpRequest) -> AgentIdentity | None:
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return read(text.strip()) if scheme.lower() == "bearer" else None


def _refused(status: int, title: str) -> HttpResponse:
    return JsonResponse({"title": title, "status": status}, status=status, content_type="application/problem+json")


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
    with crash.around("workspace.read"), job.workspace.file.open("rb") as file:
        return HttpResponse(file.read(), content_type="application/gzip")


@csrf_exempt  # a bearer token, no cookie: nothing a browser could be tricked into sending
@require_POST
def batches(request: HttpRequest) -> HttpResponse:
    identity = _identity(request)
    if identity is None:
        return _refused(401, "this is not an agent's token")
    if int(request.headers.get("Content-Length") or 0) > MAX_BATCH_BYTES:
        return _refused(413, f"a batch has at most {MAX_BATCH_BYTES} bytes")
    try:
        ack, commands = ingest.apply(identity=identity, batch=parse(request.body))
    except NotAllowed as error:
        return _refused(403, str(error))
    except InvalidInput as error:
        return _refused(400, str(error))
    return JsonResponse({"ack": ack, "time": time.time(), "commands": commands})
