"""Refuse query parameters that an operation of the REST API does not have: a misspelt `?limt=5` must not be ignored."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.settings import api_settings

from ..errors import MOST_PROBLEMS, Problem, Unreadable


class KnownParameters(BasePermission):
    """Let a request in if the operation has all of its query parameters. Raises Unreadable.

    A permission, since those are asked with the view, after the user is known and before anything is done.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        if not request.query_params:
            return True
        known = parameters_of(view, request.method or "GET")
        if known is None:
            return True
        ways = f"known are {', '.join(sorted(known))}" if known else "it has none"
        unknown = [name for name in request.query_params if name not in (*known, api_settings.URL_FORMAT_OVERRIDE)]
        if unknown:
            # Without the value: it may be a token that belongs into a header, and errors are logged.
            problem = f"is not a parameter of this operation; {ways}"
            raise Unreadable(*(Problem(name[:80], "", problem) for name in unknown[:MOST_PROBLEMS]))
        return True


def parameters_of(view: Any, method: str) -> set[str] | None:
    """Return the query parameters of the operation that a view runs: those of its description, which OpenAPI lists.

    None for a method that the view does not have, which is answered as such.
    """
    name = getattr(view, "action", None) or ("get" if method == "HEAD" else method.lower())
    handler = getattr(view, name, None)
    if handler is None:
        return None
    found = set[str]()
    if described := getattr(handler, "kwargs", {}).get("schema"):
        schema = described()
        schema.view, schema.method = view, method
        found = {one.name for one in schema.get_override_parameters() if one.location == "query"}
    if method in ("GET", "HEAD") and not getattr(view, "detail", False):
        found |= set(getattr(getattr(view, "filterset_class", None), "base_filters", ()))
        if paging := getattr(view, "pagination_class", None):
            found |= {paging.page_size_query_param, paging.cursor_query_param}
    return found
