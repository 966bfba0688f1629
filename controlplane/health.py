"""Whether this process is up (healthz) and can do its work (readyz). Neither needs an account or reveals secrets."""

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from redis import Redis
from redis.exceptions import RedisError


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"status": "ok", "version": settings.VERSION})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Return 200 while Postgres answers. Redis is reported, but without it Muster only gets slower."""
    checks = {"database": _database_answers(), "redis": _redis_answers()}
    return JsonResponse(checks, status=200 if checks["database"] else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return True
    except (DatabaseError, InterfaceError):
        return False


def _redis_answers() -> bool:
    try:
        with Redis.from_url(settings.REDIS_URL, socket_timeout=0.2, socket_connect_timeout=0.2) as redis:
            return bool(redis.ping())
    except RedisError:
        return False
