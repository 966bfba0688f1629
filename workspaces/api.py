"""/api/v1/workspaces: send code file by file, read it back, compare. Parse, call one service or reader, render."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any, cast
from urllib.parse import quote

from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import generics
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param
from rest_framework.views import APIView

from accounts.models import Team, User
from accounts.permissions import Act, may
from common.errors import InvalidInput, NotAllowed, Problem
from common.http.rest import Paging, listed

from . import reading, sent, services
from .manifest import Entry
from .models import Workspace
from .parsers import GzippedJsonParser, PackParser
from .serializers import (
    DifferenceSerializer,
    DigestsSerializer,
    EntrySerializer,
    ManifestSerializer,
    MissingSerializer,
    ReceivedSerializer,
    WorkspaceSerializer,
)

PAGE_FILES, MOST_FILES = 1000, 10_000
NAME_CHARACTERS = 200  # longer than any team's or queue's name


def _query(name: str, kind: type, description: str) -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.QUERY, description=description)


class WorkspacesView(generics.ListAPIView[Workspace]):
    """The workspaces that you sent, newest first; with ?team= those of a team that you may read."""

    queryset = Workspace.objects.none()
    serializer_class = WorkspaceSerializer
    pagination_class = Paging
    parser_classes = [GzippedJsonParser]

    def get_queryset(self) -> QuerySet[Workspace]:
        found = reading.readable_by(_user(self.request)).select_related("team", "created_by").exclude(manifest="")
        team = _name(self.request.query_params, "team")
        return found.filter(team__name=team) if team else found.filter(created_by=_user(self.request))

    @extend_schema(operation_id="workspaces_list", parameters=[_query("team", str, "all workspaces of this team")])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    @extend_schema(
        operation_id="workspaces_create",
        request=ManifestSerializer,
        responses={201: WorkspaceSerializer, 200: WorkspaceSerializer, 409: MissingSerializer},
    )
    def post(self, request: Request) -> Response:
        with _reading(request):
            body = sent.only(request.data, "team", "queue", "base", "set", "remove", "digest", "left_out")
            team = _team(_user(request), body)
            put, remove = sent.entries(body.get("set")), sent.paths(body.get("remove") or [])
            try:
                found, is_new = services.create(
                    team=team,
                    by=_user(request),
                    put=put,
                    base=sent.whole(body, "base"),
                    remove=remove,
                    expected=sent.digest(body),
                    left_out=sent.left_out(body.get("left_out")),
                )
            except services.MissingFiles as error:
                return _missing(error)
        return Response(WorkspaceSerializer(found).data, status=201 if is_new else 200)


class MissingView(APIView):
    parser_classes = [GzippedJsonParser]

    @extend_schema(operation_id="workspaces_missing", request=DigestsSerializer, responses=MissingSerializer)
    def post(self, request: Request) -> Response:
        """Return which of these files your team does not have yet."""
        with _reading(request):
            body = sent.only(request.data, "team", "queue", "digests", "size_bytes")
            team, digests = _team(_user(request), body), sent.digests(body.get("digests"))
            size = sent.whole(body, "size_bytes") or 0
            found = services.missing(team=team, by=_user(request), digests=digests, size_bytes=size)
        return Response({"missing": found})


class ReceiveView(APIView):
    parser_classes = [PackParser]

    @extend_schema(
        operation_id="workspaces_files_send",
        request={PackParser.media_type: OpenApiTypes.BINARY},
        responses={201: ReceivedSerializer},
        parameters=[
            _query("team", str, "required for members of several teams"),
            _query("queue", str, "or the queue the job will go to"),
        ],
    )
    def post(self, request: Request) -> Response:
        """Receive files in a pack (docs/wire.md, section 4)."""
        team = _team(_user(request), request.query_params)
        stream = cast(IO[bytes], request.data) if hasattr(request.data, "read") else io.BytesIO()  # an empty body
        count = services.receive(team=team, by=_user(request), stream=stream)
        return Response({"files": count}, status=201)


class WorkspaceView(APIView):
    @extend_schema(operation_id="workspaces_get", responses=WorkspaceSerializer)
    def get(self, request: Request, pk: int) -> Response:
        return Response(WorkspaceSerializer(_readable(request, pk)).data)


class FilesView(APIView):
    @extend_schema(
        operation_id="workspaces_files",
        responses=listed(EntrySerializer),
        parameters=[
            _query("after", str, "a path; from an earlier answer's `next`"),
            _query("limit", int, f"up to {MOST_FILES}"),
        ],
    )
    def get(self, request: Request, pk: int) -> Response:
        """Return every file and link, sorted by path."""
        after, limit = request.query_params.get("after", ""), _limit(request)
        workspace = _readable(request, pk)
        with reading.turn(_user(request)):
            behind = (entry for entry in reading.entries(workspace) if entry.path > after)
            page, more = list(islice(behind, limit)), next(behind, None) is not None
        following = replace_query_param(request.build_absolute_uri(), "after", page[-1].path) if more else None
        return Response({"results": EntrySerializer(page, many=True).data, "next": following})


class FileView(APIView):
    @extend_schema(operation_id="workspaces_file", responses={(200, "text/plain"): OpenApiTypes.BINARY})
    def get(self, request: Request, pk: int, path: str) -> HttpResponse:
        """Return a file's content, always as an attachment: code is shown to people, never run in their browser."""
        workspace = _readable(request, pk)
        with reading.turn(_user(request)):
            entry = found_entry(workspace, path)
        return attachment(reading.content(workspace, entry), path=path)


class DiffView(APIView):
    @extend_schema(operation_id="workspaces_diff", responses=OpenApiResponse(DifferenceSerializer))
    def get(self, request: Request, pk: int, other: int) -> HttpResponse:
        """Return what changed from the first to the other."""
        before, after = _readable(request, pk), _readable(request, other)
        with reading.turn(_user(request)):
            found = DifferenceSerializer(reading.compare(before, after)).data
            content = JSONRenderer().render(found)  # within the turn: rendered, an answer takes the least memory
        return HttpResponse(content, content_type="application/json")


def found_entry(workspace: Workspace, path: str) -> Entry:
    """Return the file of this path. Raises Http404, and InvalidInput for a link: it has no content of its own."""
    entry = next((one for one in reading.entries(workspace) if one.path == path), None)
    if entry is None:
        raise Http404(f"workspace {workspace.pk} does not contain {path}")
    if not entry.is_file:
        raise InvalidInput(Problem("path", path, f"is a link to {entry.target}; request that file instead"))
    return entry


def attachment(content: bytes, *, path: str) -> HttpResponse:
    answer = HttpResponse(content, content_type="text/plain; charset=utf-8")
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2], safe='')}"
    return answer


def _missing(error: services.MissingFiles) -> Response:
    body = {"type": "about:blank", "title": "Files are missing", "status": 409, "detail": str(error)}
    return Response({**body, "missing": error.digests}, status=409, content_type="application/problem+json")


def _readable(request: Request, pk: int) -> Workspace:
    found = reading.readable_by(_user(request)).select_related("team", "created_by").filter(pk=pk).first()
    if found is None:
        raise Http404("no such workspace, or you may not read it")
    return found


def _limit(request: Request) -> int:
    text = request.query_params.get("limit") or str(PAGE_FILES)
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise InvalidInput(Problem("limit", text, f"must be a whole number from 1 to {MOST_FILES}"))
    return min(int(text), MOST_FILES)


def _user(request: Request) -> User:
    assert isinstance(request.user, User)
    return request.user


@contextmanager
def _reading(request: Request) -> Iterator[None]:
    """Parse a body of up to 48 MiB, only for users who may send code at all, and only a few at a time.

    Raises NotAllowed, and Busy where too many of one user wait.
    """
    if not _may_send_to(_user(request)):
        raise _nowhere(_user(request))
    with reading.turn(_user(request)):
        yield


def _may_send_to(user: User) -> list[Team]:
    return [team for team in Team.objects.order_by("name") if may(user, Act.SUBMIT, team)]


def _nowhere(user: User) -> NotAllowed:
    return NotAllowed(
        f"{user.get_username()} may not submit jobs in any team; ask an administrator to add you as a member"
    )


def _team(user: User, asked: Mapping[str, Any]) -> Team:
    """Return the team that will own the code: the named one, or the only one in which the user may submit."""
    name, queue = (_name(asked, field) for field in ("team", "queue"))
    teams = _may_send_to(user)
    if queue:
        teams = [team for team in teams if team.queues.filter(name=queue).exists()]
    elif name:
        teams = [team for team in teams if team.name == name]
    if len(teams) == 1:
        return teams[0]
    if not teams and (queue or name):
        field, value = ("queue", queue) if queue else ("team", name)
        words = f"{value!r} is not a {field} that you may submit to; `muster {field}s` lists yours"
        raise InvalidInput(Problem(field, value, words))
    if not teams:
        raise _nowhere(user)
    raise InvalidInput(Problem("team", name, f"name the team, one of {', '.join(team.name for team in teams)}"))


def _name(asked: Mapping[str, Any], field: str) -> str:
    value = asked.get(field) or ""
    if not isinstance(value, str) or "\0" in value or len(value) > NAME_CHARACTERS:
        raise InvalidInput(Problem(field, str(value)[:80] if isinstance(value, str) else None, "must be a name"))
    return value
