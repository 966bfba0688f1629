"""Filters of the audit."""

from typing import Any

from django_filters import CharFilter
from drf_spectacular.utils import extend_schema_field

from common.http.filters import Filters


def _text(column: str, *, most: int) -> Any:
    return extend_schema_field({"type": "string", "maxLength": most})(CharFilter(column, max_length=most))


class AuditFilters(Filters):
    team = _text("team_name", most=40)
    actor = _text("actor_name", most=150)
    act = _text("act", most=40)
