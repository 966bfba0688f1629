"""Nobody keeps a connection to the database while waiting for anything else: there are only a few (MUSTER_DB_POOL)."""

from collections.abc import Callable

from django.db import InterfaceError, OperationalError, connection
from django.http import HttpRequest, HttpResponse

AWAY = (OperationalError, InterfaceError)  # it does not answer, or not any more: the same request may work later
RETRY_SECONDS = 2


def give_back() -> None:
    """This thread's connection to the pool. Called before every wait; within a transaction (tests) it stays."""
    if not connection.in_atomic_block:
        connection.close()


class GiveBack:
    """Outermost: when the answer is made, no connection is needed. Sending it takes as long as its reader likes, and
    Django itself gives the connection back only after the last byte."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            return self.get_response(request)
        finally:
            give_back()
