"""Shared by every endpoint of /api/v1: one error format (RFC 9457 problem details) and keyset paging."""

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, DataError, InterfaceError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.http import ConditionalGetMiddleware
from django.utils.cache import patch_vary_headers
from drf_spectacular.utils import inline_serializer
from rest_framework import exceptions, serializers
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

from ..errors import (
    MOST_PROBLEMS,
    Busy,
    Conflict,
    InvalidInput,
    MusterError,
    NotAllowed,
    Problem,
    Unreadable,
    bounded,
    the_first,
)
from ..telemetry import measures
from .compression import compressed

log = logging.getLogger(__name__)
DETAIL_CHARACTERS = 20_000
MOST_ID = 2**63 - 1


class ConditionalGet(ConditionalGetMiddleware):
    """ETag, 304 and compression for the REST API only: each page contains a fresh CSRF token, so its tags would never match.

    Compressed is what a program reads with a token. A browser's answers are not: another site could have it ask.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not request.path_info.startswith("/api/"):
            return response
        # A browser must store nothing; a program may, and revalidates with its tag.
        is_browser = settings.SESSION_COOKIE_NAME in request.COOKIES
        response.setdefault("Cache-Control", "private, no-store" if is_browser else "private, no-cache")
        response = super().process_response(request, response)
        if (
            not is_browser
            and request.method == "GET"
            and response.status_code == 200
            and isinstance(response, HttpResponse)
        ):
            patch_vary_headers(response, ["Accept-Encoding"])
            response = compressed(response, request)
            if response.has_header("Content-Encoding") and (tag := response.get("ETag", "")).startswith('"'):
                response["ETag"] = f"W/{tag}"  # the same content in another encoding
        return response


class Paging(CursorPagination):
    """Page by id, newest first: a page stays the same while new rows arrive. `limit` up to 200."""

    ordering = "-id"
    page_size = 50
    max_page_size = 200
    page_size_query_param = "limit"
    cursor_query_param = "after"

    def get_page_size(self, request: Request) -> int:
        """Return the page size. A bad limit is refused, since a script that means 100 should not continue with 50."""
        text = request.query_params.get(self.page_size_query_param)
        if text is None:
            return self.page_size
        if not (text.isascii() and text.isdecimal()) or not text.strip("0"):
            raise InvalidInput(Problem("limit", text, f"must be a whole number from 1 to {self.max_page_size}"))
        return min(int(text[:9]), self.max_page_size)

    def decode_cursor(self, request: Request) -> Any:
        """Refuse a foreign cursor: a script with a broken cursor should not begin again at the first page."""
        text = request.query_params.get(self.cursor_query_param)
        try:
            found = super().decode_cursor(request)
        except exceptions.NotFound as error:
            raise _bad_cursor(text) from error
        if found is None:
            return None
        position = found.position
        if position is not None and not _is_id(str(position)):
            raise _bad_cursor(text)
        return found

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"results": data, "next": self.get_next_link()})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["results", "next"],
            "properties": {"results": schema, "next": {"type": ["string", "null"], "format": "uri"}},
        }


def _bad_cursor(text: str | None) -> Unreadable:
    return Unreadable(
        Problem("after", text, "is not a valid cursor; take it from `next`, or omit it to start from the beginning")
    )


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= MOST_ID


class BoundedList(serializers.ListField):
    """A list refused for its length before any item is validated, and after its first few wrong items.

    DRF validates every item first, and answers with an error for each of half a million.
    """

    default_error_messages = {"max_length": "has at most {max_length} items; send fewer"}

    def __init__(self, *, max_length: int, **options: Any):
        super().__init__(max_length=max_length, **options)
        self.most = max_length

    def to_internal_value(self, data: Any) -> list[Any]:
        if isinstance(data, list) and len(data) > self.most:
            self.fail("max_length", max_length=self.most)
        found: list[Any] = super().to_internal_value(data)
        return found

    def run_child_validation(self, data: Any) -> list[Any]:
        found: list[Any] = []
        wrong: dict[str, Any] = {}
        for index, item in enumerate(data):
            if len(wrong) == MOST_PROBLEMS - 1:
                wrong[str(index)] = ["and later items were not checked; correct the items before them first"]
                break
            try:
                found.append(self.child.run_validation(item))
            except exceptions.ValidationError as error:
                wrong[str(index)] = error.detail
        if wrong:
            raise exceptions.ValidationError(wrong)
        return found


def listed(shape: type[serializers.BaseSerializer[Any]]) -> serializers.Serializer[Any]:
    """Describe an unpaged list for the schema, in the envelope that every list has."""
    name = shape.__name__.removesuffix("Serializer")
    frame = {"results": shape(many=True), "next": serializers.CharField(allow_null=True)}
    return inline_serializer(f"{name}List", frame)


def problem(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return every refusal as problem details: what is wrong, with which field and value, and how to fix it."""
    if isinstance(error, MusterError | DatabaseError | InterfaceError):
        measures.failed("api", error)
    match error:
        case Unreadable():
            return _answer(400, "The request cannot be read", str(error), problems=list(error.problems))
        case InvalidInput():
            return _answer(422, "The request is not valid", str(error), problems=list(error.problems))
        case Conflict():
            return _answer(
                409,
                "The current state does not allow this",
                str(error),
                problems=[Problem(error.field, error.value, str(error))],
            )
        case NotAllowed():
            return _answer(403, "Not allowed", str(error))
        case Busy():
            return _answer(429, "Too many requests", str(error), retry_after=error.seconds)
        case MusterError():
            return _answer(503 if error.retry else 500, "Muster could not complete this request", str(error))
        case Http404():
            return _answer(404, "Not found", str(error) or "it does not exist, or you may not see it")
        case PermissionDenied():
            return _answer(403, "Not allowed", str(error) or "you may not do this")
        case exceptions.ValidationError():
            problems = list(the_first(_fields(error.detail, _sent(context))))
            return _answer(422, "The request is not valid", "some fields are wrong", problems=problems)
        case exceptions.APIException():
            return _from_framework(error)
        case DataError():
            log.exception("a value of an API call fits in no column")
            return _answer(
                400, "The request cannot be read", "a number or text in it is larger than any field can hold"
            )
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
    status: int, title: str, detail: str, *, problems: list[Problem] | None = None, retry_after: int = 0
) -> Response:
    body = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": _text(bounded(detail), DETAIL_CHARACTERS),
    }
    if problems:
        body["errors"] = [
            {"field": _text(one.field), "value": _plain(one.value), "message": _text(one.message, DETAIL_CHARACTERS)}
            for one in problems
        ]
    response = Response(body, status=status, content_type="application/problem+json")
    if retry_after:
        response["Retry-After"] = str(retry_after)
    return response


def _plain(value: object) -> object:
    """Return the value as JSON, shortened to what a person wants to read."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return _text(str(value))


def _text(text: str, most: int = 200) -> str:
    """Return text that a response can carry: a lone surrogate is not valid UTF-8."""
    return text[:most].encode("utf-8", "backslashreplace").decode()


def _fields(detail: Any, sent: Any, prefix: str = "") -> Iterator[Problem]:
    """Flatten DRF's nested messages to dotted field names. `sent` is what they are about, as far as it is known."""
    if isinstance(detail, dict):
        for name, inner in detail.items():
            yield from _fields(inner, _part(sent, name), f"{prefix}.{name}".lstrip("."))
    elif isinstance(detail, list):
        for message in detail:
            yield from _fields(message, sent, prefix)
    else:
        yield Problem(prefix, None, bounded(str(detail), sent))


def _part(sent: Any, name: Any) -> Any:
    """Return one field of a mapping or one item of a list; None where there is no such part."""
    if isinstance(sent, list):
        index = str(name)
        return sent[int(index)] if index.isdecimal() and len(index) < 10 and int(index) < len(sent) else None
    return sent.get(name) if isinstance(sent, Mapping) else None


def _sent(context: dict[str, Any]) -> Any:
    """Return the request's parsed body; None where it could not be parsed."""
    try:
        return context["request"].data
    except (KeyError, exceptions.APIException, MusterError):
        return None
