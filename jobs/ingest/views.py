"""/agent/v1: where agents fetch code; their batches never come here (asgi.py). Their token is checked first."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from common.errors import InvalidInput
from common.http.streaming import gathered, streamed
from jobs.core.agent_identity import AgentIdentity
from jobs.models import Job
from workspaces import reading
from workspaces.models import Workspace

from . import apply, replica_rows
from .agent_tokens import bearer
from .handler import refused

DIGEST_BYTES = 32
MAX_DIGESTS_BYTES = 100_000 * DIGEST_BYTES


def _identity(request: HttpRequest) -> AgentIdentity | None:
    return bearer(request.headers.get("Authorization", ""))


def _refused(status: int, title: str) -> HttpResponse:
    one = refused(status, title)
    return JsonResponse(one.content, status=one.status, content_type=one.kind)


@csrf_exempt  # a bearer token, no cookie: nothing a browser could be tricked into sending
@require_http_methods(["GET", "POST"])
def workspace(request: HttpRequest) -> HttpResponseBase:
    """GET: the list of the job's files. POST: those whose digests are in the body, as a pack."""
    identity = _identity(request)
    if identity is None:
        return _refused(401, "this is not an agent's token")
    job = Job.objects.select_related("workspace").filter(pk=identity.job, uid=identity.run.partition("-")[2]).first()
    replica = replica_rows.find(identity)
    if job is None or job.is_finished or replica is None or apply.is_shut_out(replica):
        return _refused(403, "this attempt is over")
    if job.workspace is None:
        return HttpResponse(status=204)
    try:
        return _files(request, job.workspace) if request.method == "POST" else _manifest(request, job.workspace)
    except (reading.DamagedStore, InvalidInput) as error:
        return _refused(410, f"the job's code cannot be read: {error}; upload it again and resubmit")


def _manifest(request: HttpRequest, code: Workspace) -> HttpResponseBase:
    if not code.manifest:
        raise reading.DamagedStore("it was stored by an older release")
    answer = streamed(request, reading.manifest_text(code), "application/x-muster-manifest")
    answer["X-Muster-Digest"], answer["X-Muster-Team"] = code.digest, str(code.team_id)
    return answer


def _files(request: HttpRequest, code: Workspace) -> HttpResponseBase:
    """Send files by digest, but only files of this job's code."""
    if int(request.headers.get("Content-Length") or 0) > MAX_DIGESTS_BYTES:
        return _refused(413, f"at most {MAX_DIGESTS_BYTES} bytes of digests can be sent at once")
    body = request.body
    asked = [body[at : at + DIGEST_BYTES].hex() for at in range(0, len(body), DIGEST_BYTES)]
    if len(body) % DIGEST_BYTES or reading.without_file(code, asked):
        return _refused(404, "these are not digests of files of this job's code")
    return streamed(request, gathered(reading.pack(code, asked)), "application/x-muster-pack")
