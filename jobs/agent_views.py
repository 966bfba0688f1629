"""/agent/v1: where agents fetch code and bring news. Their token is checked before anything else is looked at."""

import time
from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.errors import InvalidInput, NotAllowed
from workspaces import reading
from workspaces.models import Workspace

from . import ingest
from .agent_tokens import AgentIdentity, read
from .batches import MAX_BATCH_BYTES, parse
from .models import Job

DIGEST_BYTES = 32
MAX_DIGESTS_BYTES = 100_000 * DIGEST_BYTES
PIECE_BYTES = 1 << 18


def _identity(request: HttpRequest) -> AgentIdentity | None:
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return read(text.strip()) if scheme.lower() == "bearer" else None


def _refused(status: int, title: str) -> HttpResponse:
    return JsonResponse({"title": title, "status": status}, status=status, content_type="application/problem+json")


@csrf_exempt  # a bearer token, no cookie: nothing a browser could be tricked into sending
@require_http_methods(["GET", "POST"])
def workspace(request: HttpRequest) -> HttpResponseBase:
    """GET: the list of the job's files. POST: those of them whose digests are in the body, as a pack."""
    identity = _identity(request)
    if identity is None:
        return _refused(401, "this is not an agent's token")
    job = Job.objects.select_related("workspace").filter(pk=identity.job, uid=identity.run.partition("-")[2]).first()
    if job is None or job.is_finished:
        return _refused(403, "this job is over")
    if job.workspace is None:
        return HttpResponse(status=204)
    try:
        return _files(request, job.workspace) if request.method == "POST" else _manifest(job.workspace)
    except (reading.Lost, InvalidInput) as error:
        return _refused(410, f"the job's code can not be read: {error}; upload it again and resubmit")


def _manifest(code: Workspace) -> HttpResponse:
    if not code.manifest:
        raise reading.Lost("it was stored by an older release")
    answer = HttpResponse(reading.manifest_text(code), content_type="application/x-muster-manifest")
    answer["X-Muster-Digest"], answer["X-Muster-Team"] = code.digest, str(code.team_id)
    return answer


def _files(request: HttpRequest, code: Workspace) -> HttpResponseBase:
    """Nothing is given by its digest alone: it must be a file of this job's code."""
    if int(request.headers.get("Content-Length") or 0) > MAX_DIGESTS_BYTES:
        return _refused(413, f"at most {MAX_DIGESTS_BYTES} bytes of digests can be asked for at once")
    body = request.body
    asked = [body[at : at + DIGEST_BYTES].hex() for at in range(0, len(body), DIGEST_BYTES)]
    if len(body) % DIGEST_BYTES or not {entry.digest for entry in reading.entries(code)}.issuperset(asked):
        return _refused(404, "these are not digests of files of this job's code")
    pieces = reading.pack(code, asked)
    content = _in_threads(pieces) if isinstance(request, ASGIRequest) else pieces
    return StreamingHttpResponse(content, content_type="application/x-muster-pack")


async def _in_threads(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """A plain iterator would be gathered whole before its first byte goes out. Small pieces travel together."""
    take = sync_to_async(_some, thread_sensitive=False)
    while some := await take(pieces):
        yield some


def _some(pieces: Iterator[bytes]) -> bytes:
    gathered = bytearray()
    for piece in pieces:
        gathered += piece
        if len(gathered) >= PIECE_BYTES:
            break
    return bytes(gathered)


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
