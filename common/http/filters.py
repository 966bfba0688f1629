"""Filters of a list, in the query string of its page and of its API endpoint alike: one FilterSet for both.

The API refuses a value that a filter cannot take; a page leaves that filter out, as it does with any other part of an
address that it cannot read.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from django import forms
from django.db.models import QuerySet
from django_filters import CharFilter, FilterSet
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.request import Request
from rest_framework.views import APIView

from ..errors import InvalidInput, Problem


class Filters(FilterSet):  # type: ignore[misc]  # django-filter brings no types
    """The filters of a list. `qs` is the list filtered by all valid values."""

    @property
    def values(self) -> dict[str, Any]:
        """The values by name, without invalid ones; empty where not given."""
        self.is_valid()
        cleaned: dict[str, Any] = self.form.cleaned_data
        return cleaned

    def problems(self) -> Iterator[Problem]:
        for name, errors in self.errors.as_data().items():
            for error in errors:
                value = (error.params or {}).get("value", self.data.get(name))
                yield Problem(name, value, error.messages[0])


class StrictFilters(DjangoFilterBackend):  # type: ignore[misc]  # django-filter brings no types
    """Filters of a list of the API, by the view's `filterset_class`, which OpenAPI lists too. Raises InvalidInput."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: APIView) -> QuerySet[Any]:
        if getattr(view, "detail", False):  # one row, whose endpoints may have parameters of the same names
            return queryset
        filters = self.get_filterset(request, queryset, view)
        if not filters.is_valid():
            raise InvalidInput(*filters.problems())
        found: QuerySet[Any] = filters.qs
        return found


class WordsField(forms.Field):
    def __init__(self, *, known: Iterable[str], alone: Iterable[str] = (), **options: Any):
        super().__init__(**options)
        self.known, self.alone = tuple(known), tuple(alone)

    def to_python(self, value: str | None) -> list[str]:
        if not value or value in self.alone:
            return [value] if value else []
        words = value.split(",")
        for word in words:
            if word not in self.known:
                known = ", ".join((*self.alone, *self.known))
                raise forms.ValidationError(f"must be one of {known}", params={"value": word})
        return words


class WordsFilter(CharFilter):  # type: ignore[misc]  # django-filter brings no types
    """One or several of the `known` words, separated by commas; or one that is only valid `alone`."""

    field_class = WordsField
