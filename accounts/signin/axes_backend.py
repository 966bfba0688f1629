"""The backend that refuses after too many failures. Without a request (a command, a test) nothing is counted."""

from typing import Any

from axes.backends import AxesStandaloneBackend
from django.http import HttpRequest


class Pausing(AxesStandaloneBackend):  # type: ignore[misc]  # axes brings no types
    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> None:
        if request is not None:
            super().authenticate(request, **credentials)
