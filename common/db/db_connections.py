"""Return database connections before any other wait: there are only a few (MUSTER_DB_POOL)."""

from collections.abc import Callable

from django.db import InterfaceError, OperationalError, connection
from django.http import HttpRequest, HttpResponse

AWAY = (OperationalError, InterfaceError)  # no answer, or the connection was lost: the same request may work later
RETRY_SECONDS = 2


def give_back() -> None:
    """Return this thread's connection to the pool. Called before every wait; a no-op inside a transaction (tests)."""
    if not connection.in_atomic_block:
        connection.close()


class GiveBack:
    """Outermost middleware: returns the connection once the response is built.

    Sending takes as long as the client's reads do, and Django itself returns the connection only after the last byte.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            return self.get_response(request)
        finally:
            give_back()
