"""What every endpoint of /api/v1 shares: one error shape (RFC 9457 problem details) and keyset paging."""

import logging
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, InterfaceError
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.http import ConditionalGetMiddleware
from drf_spectacular.utils import inline_serializer
from rest_framework import exceptions, serializers
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

from .errors import Conflict, InvalidInput, MusterError, NotAllowed, Problem

log = logging.getLogger(__name__)


class ConditionalGet(ConditionalGetMiddleware):
    """ETag and 304 for the REST API. Pages hold a fresh CSRF token in each answer, so a tag of theirs says nothing."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not request.path_info.startswith("/api/"):
            return response
        # A browser keeps nothing; a program may, and asks with its tag whether that still holds.
        is_browser = settings.SESSION_COOKIE_NAME in request.COOKIES
        response.setdefault("Cache-Control", "private, no-store" if is_browser else "private, no-cache")
        return super().process_response(request, response)


class Paging(CursorPagination):
    """By id, newest first: a page stays the same while new rows arrive. `limit` up to 200."""

    ordering = "-id"
    page_size = 50
    max_page_size = 200
    page_size_query_param = "limit"
    cursor_query_param = "after"

    def get_page_size(self, request: Request) -> int:
        """A limit that is none is refused, since a script that means 100 should not go on with 50."""
        text = request.query_params.get(self.page_size_query_param)
        if text is None:
            return self.page_size
        if not (text.isascii() and text.isdecimal()) or not text.strip("0"):
            raise InvalidInput(Problem("limit", text, f"must be a whole number from 1 to {self.max_page_size}"))
        return min(int(text[:9]), self.max_page_size)

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"results": data, "next": self.get_next_link()})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["results", "next"],
            "properties": {"results": schema, "next": {"type": ["string", "null"], "format": "uri"}},
        }


def listed(shape: type[serializers.BaseSerializer[Any]]) -> serializers.Serializer[Any]:
    """How a list that has no pages is described: in the frame that every list has."""
    name = shape.__name__.removesuffix("Serializer")
    frame = {"results": shape(many=True), "next": serializers.CharField(allow_null=True)}
    return inline_serializer(f"{name}List", frame)


def problem(error: Exception, context: dict[str, Any]) -> Response | None:
    """Every refusal as problem details: what is wrong, with which field and value, and the way out."""
    match error:
        case InvalidInput():
            return _answer(422, "The request can not be carried out as it is", str(error), list(error.problems))
        case Conflict():
            return _answer(
                409,
                "The present state does not allow this",
                str(error),
                [Problem(error.field, error.value, str(error))],
            )
        case NotAllowed():
            return _answer(403, "Not allowed", str(error))
        case MusterError():
            return _answer(503 if error.retry else 500, "Muster could not do this", str(error))
        case Http404():
            return _answer(404, "Not found", str(error) or "there is nothing here that you may see")
        case PermissionDenied():
            return _answer(403, "Not allowed", str(error) or "you may not do this")
        case exceptions.ValidationError():
            return _answer(
                422, "The request can not be carried out as it is", "some fields are wrong", _fields(error.detail)
            )
        case exceptions.APIException():
            return _from_framework(error)
        case DatabaseError() | InterfaceError():
            log.exception("database error in an API call")
            return _answer(503, "The database does not answer", "try again in a moment", retry_after=2)
    return None


def _from_framework(error: exceptions.APIException) -> Response:
    response = _answer(error.status_code, type(error).__name__, str(error.detail))
    if isinstance(error, exceptions.AuthenticationFailed | exceptions.NotAuthenticated):
        response.status_code = response.data["status"] = 401
        response["WWW-Authenticate"] = "Bearer"
    wait = getattr(error, "wait", None)
    if wait:
        response["Retry-After"] = str(int(wait))
    return response


def _answer(
    status: int, title: str, detail: str, problems: list[Problem] | None = None, retry_after: int = 0
) -> Response:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    if problems:
        body["errors"] = [{"field": one.field, "value": _plain(one.value), "message": one.message} for one in problems]
    response = Response(body, status=status, content_type="application/problem+json")
    if retry_after:
        response["Retry-After"] = str(retry_after)
    return response


def _plain(value: object) -> object:
    """The value as JSON, and never more of it than a person wants to read."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:200]


def _fields(detail: Any, prefix: str = "") -> list[Problem]:
    """DRF's nested messages, flattened to dotted field names."""
    if isinstance(detail, dict):
        return [one for name, inner in detail.items() for one in _fields(inner, f"{prefix}.{name}".lstrip("."))]
    messages = detail if isinstance(detail, list) else [detail]
    return [
        one
        for message in messages
        for one in (
            _fields(message, prefix) if isinstance(message, dict | list) else [Problem(prefix, None, str(message))]
        )
    ]
