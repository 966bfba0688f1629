"""The backend that refuses who failed too often. Without a request nobody knocks from outside: a command asks, or a test."""

from typing import Any

from axes.backends import AxesStandaloneBackend
from django.http import HttpRequest


class Pausing(AxesStandaloneBackend):  # type: ignore[misc]  # axes brings no types
    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> None:
        if request is not None:
            super().authenticate(request, **credentials)
