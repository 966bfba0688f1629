"""Addresses of Postgres and Redis, as the environment gives them, in the shapes that Django and Celery want. Pure."""

import ssl
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from .db_timeout import PatientConnection
from .environment import BadSetting

# What a query may say to libpq. Anything else is refused: a misspelt sslmode would quietly be no TLS.
PASSED_ON = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "channel_binding", "connect_timeout")
RECONNECT_SECONDS = 5.0
_CERTIFICATES = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


def database(url: str, *, pool: int, seconds: int = 20) -> dict[str, Any]:
    """A Django database entry from postgres://user:password@host:port/name; a host in ?host= may be a socket folder.

    `seconds`: how long somebody waits for a connection, and a connection for the server, unless the address says more.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise BadSetting(f"DATABASE_URL must begin with postgres://, not {parts.scheme}://")
    query = dict(parse_qsl(parts.query))
    if unknown := sorted(set(query) - {"host", "port", *PASSED_ON}):
        raise BadSetting(
            f"DATABASE_URL: {', '.join(unknown)} is not known here; what is: host, port, {', '.join(PASSED_ON)}"
        )
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.get("host", "") or unquote(parts.hostname or ""),
        "PORT": str(parts.port or query.get("port", "") or ""),
        # A pool, not persistent connections: a thread of the web server lives as long as one request.
        # Four connections serve all requests; streams and requests that wait for news hold none.
        "OPTIONS": {
            "pool": {
                "min_size": 1,
                "max_size": pool,
                "timeout": seconds,
                # The pool waits twice as long after each attempt that failed, and meanwhile makes no other in its place: for
                # minutes, after a database that was away for minutes. Given up, the next request makes a new one at once.
                "reconnect_timeout": RECONNECT_SECONDS,
                "connection_class": PatientConnection,
            },
            "connect_timeout": str(seconds),
            # No transaction of ours waits for anything but Postgres: one that idles belongs to a process that was stopped,
            # and its locks would stop the others too.
            "options": "-c idle_in_transaction_session_timeout=5000",
            **{name: query[name] for name in PASSED_ON if name in query},
        },
    }


def broker_tls(url: str) -> dict[str, Any] | None:
    """What Celery needs beside a rediss:// address; the certificate is checked unless the address says otherwise."""
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise BadSetting(f"REDIS_URL must begin with redis:// or rediss://, not {parts.scheme}://")
    if parts.scheme != "rediss":
        return None
    query = dict(parse_qsl(parts.query))
    asked = query.get("ssl_cert_reqs", "required")
    if asked not in _CERTIFICATES:
        raise BadSetting(f"REDIS_URL: ssl_cert_reqs is {asked}; it must be one of {', '.join(_CERTIFICATES)}")
    files: dict[str, Any] = {
        name: query[name] for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile") if name in query
    }
    return {"ssl_cert_reqs": _CERTIFICATES[asked], "ssl_check_hostname": asked == "required", **files}
