"""Whether this process is up (healthz) and can do its work (readyz). Neither needs an account or reveals secrets."""

import threading
import time

import psycopg
from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from redis import Redis
from redis.exceptions import RedisError

from common.db.leadership import own_connection

PROBE_SECONDS = 2  # kubelets and load balancers wait a few seconds
KEPT_SECONDS = 1.0


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"status": "ok", "version": settings.VERSION})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Return 200 while Postgres answers. Redis is reported, but without it Muster only gets slower."""
    checks = {"database": database_answers(), "redis": _redis_answers()}
    return JsonResponse(checks, status=200 if checks["database"] else 503)


_probing = threading.Lock()
_probed: tuple[float, bool] = (0.0, False)  # when, on the monotonic clock, and what was found


def database_answers() -> bool:
    """Return within seconds whether Postgres answers, from a connection of its own: one of the pool is waited for longer.

    One at a time, and what it found holds for a second: anybody may ask, and Postgres has few connections.
    """
    global _probed
    with _probing:
        at, found = _probed
        if time.monotonic() - at > KEPT_SECONDS:
            try:
                with own_connection(seconds=PROBE_SECONDS) as session:
                    session.execute("SELECT 1")
                found = True
            except (psycopg.Error, DatabaseError):
                found = False
            _probed = time.monotonic(), found
        return found


def _redis_answers() -> bool:
    try:
        with Redis.from_url(settings.REDIS_URL, socket_timeout=0.2, socket_connect_timeout=0.2) as redis:
            return bool(redis.ping())
    except RedisError:
        return False
