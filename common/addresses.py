"""Convert addresses of Postgres, Redis, stored files and collectors from the environment into settings. Pure."""

import re
import ssl
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redis import ConnectionPool
from redis.exceptions import RedisError

from .db.db_timeout import PatientConnection
from .environment import BadSetting

# Query parameters passed on to libpq. Any other is refused: a misspelt sslmode would silently mean no TLS.
PASSED_ON = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "channel_binding", "connect_timeout")
RECONNECT_SECONDS = 5.0
_CERTIFICATES = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


def database(url: str, *, pool: int, seconds: int = 20) -> dict[str, Any]:
    """Return the Django database entry for an address of the form postgres://user:password@host:port/name.

    A host in ?host= may be a socket folder. `seconds`: timeout both for getting a connection from the pool and for
    connecting to the server, unless the address overrides it.
    """
    parts = _split(url, name="DATABASE_URL")
    if parts.scheme not in ("postgres", "postgresql"):
        raise BadSetting(f"DATABASE_URL must begin with postgres://, not {parts.scheme}://")
    query = dict(parse_qsl(parts.query))
    if unknown := sorted(set(query) - {"host", "port", *PASSED_ON}):
        raise BadSetting(
            f"DATABASE_URL: {', '.join(unknown)} is not a known parameter; known are host, port, {', '.join(PASSED_ON)}"
        )
    port = str(_port(parts, name="DATABASE_URL") or query.get("port", "") or "")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.get("host", "") or unquote(parts.hostname or ""),
        "PORT": port,
        # A pool, not persistent connections: a thread of the web server lives only as long as one request. Four
        # connections serve all requests; streams and requests that wait for updates hold none.
        "OPTIONS": {
            "pool": {
                "min_size": 1,
                "max_size": pool,
                "timeout": seconds,
                # The pool doubles its wait after each failed attempt and opens no other connection in its place
                # meanwhile: for minutes, after a database outage of minutes. Once it gives up, the next request opens a
                # new one at once.
                "reconnect_timeout": RECONNECT_SECONDS,
                "connection_class": PatientConnection,
            },
            "connect_timeout": str(seconds),
            # No transaction here waits for anything but Postgres, so an idle one belongs to a process that was stopped,
            # and its locks would block the other processes too.
            "options": "-c idle_in_transaction_session_timeout=5000",
            **{name: query[name] for name in PASSED_ON if name in query},
        },
    }


def broker_tls(url: str) -> dict[str, Any] | None:
    """Return what Celery needs besides a rediss:// address; the certificate is checked unless the address opts out.

    Raises BadSetting for an address that a client of Redis could not use, or would take for another one.
    """
    parts = _split(url, name="REDIS_URL")
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise BadSetting(f"REDIS_URL must begin with redis:// or rediss://, not {parts.scheme}://")
    query = dict(parse_qsl(parts.query))
    asked = query.get("ssl_cert_reqs", "required")
    if asked not in _CERTIFICATES:
        raise BadSetting(f"REDIS_URL: ssl_cert_reqs is {asked[:40]}; it must be one of {', '.join(_CERTIFICATES)}")
    _check_redis(url, parts)
    if parts.scheme != "rediss":
        return None
    files: dict[str, Any] = {
        name: query[name] for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile") if name in query
    }
    return {"ssl_cert_reqs": _CERTIFICATES[asked], "ssl_check_hostname": asked == "required", **files}


def _check_redis(url: str, parts: SplitResult) -> None:
    """Raise BadSetting unless host, port, number and parameters are what they look like."""
    _port(parts, name="REDIS_URL")
    is_of_host = bool(parts.hostname) and re.fullmatch(r"(/[0-9]*)?", parts.path) is not None
    if parts.fragment or not (is_of_host or parts.scheme == "unix"):
        raise BadSetting(f"REDIS_URL must have the form redis://USER:PASSWORD@HOST:6379/0; {_ENCODED}")
    try:
        ConnectionPool.from_url(url).make_connection()  # opens none yet
    except (TypeError, ValueError, RedisError):  # its words might quote a secret
        names = ", ".join(sorted(dict(parse_qsl(parts.query)))) or "none"
        raise BadSetting(
            f"REDIS_URL: a parameter behind ? is unknown or has a wrong value; there are: {names}. {_ENCODED}"
        ) from None


def files(url: str, *, name: str = "MUSTER_FILES") -> dict[str, Any]:
    """Return the entry of STORAGES for an address of stored files; empty means the folder MEDIA_ROOT.

    s3://KEY:SECRET@BUCKET/PREFIX?endpoint=https://HOST:PORT&region=NAME; without a key boto3 looks for one itself. Raises
    BadSetting, whose words hold no part of the address that could be a secret.
    """
    if not url:
        # A batch that is sent again after a crash writes the same bytes under the same name.
        return {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"allow_overwrite": True}}
    parts = _split(url, name=name)
    if parts.scheme != "s3":
        raise BadSetting(f"{name} must begin with s3://, or be empty for the folder files in MUSTER_DATA_DIR")
    query = dict(parse_qsl(parts.query))
    if unknown := sorted(set(query) - {"endpoint", "region"}):
        raise BadSetting(f"{name}: {', '.join(unknown)} is not a known parameter; known are endpoint, region")
    bucket = parts.netloc.rpartition("@")[2]
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
        raise BadSetting(
            f"{name}: {bucket[:63]!r} is no name of a bucket; write s3://KEY:SECRET@BUCKET/PREFIX, with / + and @ of the secret "
            "percent-encoded"
        )
    if bool(parts.username) != bool(parts.password):
        raise BadSetting(f"{name} has one of key and secret; it must have both or none")
    endpoint = query.get("endpoint", "")
    if endpoint and not re.fullmatch(r"https?://[^/?#@\s]+/?", endpoint):
        raise BadSetting(
            f"{name}: endpoint is {endpoint[:100]}; it must be an address such as https://objects.example.com:9000"
        )
    options = {
        "bucket": bucket, "prefix": unquote(parts.path.strip("/")), "endpoint": endpoint, "region": query.get("region", ""),
        "access_key": unquote(parts.username or ""), "secret_key": unquote(parts.password or ""),
    }  # fmt: skip
    return {"BACKEND": "common.files.object_storage.ObjectStorage", "OPTIONS": options}


def collector(url: str, *, name: str) -> str:
    """Return the address of an OTLP/HTTP collector; empty where there is none. Raises BadSetting."""
    if not url:
        return ""
    parts = _split(url, name=name)
    if parts.username or parts.password or parts.query:
        raise BadSetting(
            f"{name} holds more than an address; credentials belong in OTEL_EXPORTER_OTLP_HEADERS or the file of its _FILE"
        )
    if not _is_of_web(url, parts):
        raise BadSetting(
            f"{name} is {url[:100]!r}; it must be the address of an OTLP/HTTP collector, such as http://collector:4318"
        )
    return url


def pages(url: str, *, name: str) -> str:
    """Return the address at which people reach the pages; empty where it is not known. Raises BadSetting."""
    if not url:
        return ""
    parts = _split(url, name=name)
    if parts.username or parts.password or parts.query or not _is_of_web(url, parts):
        shown = "not an address of pages" if "@" in url else repr(url[:100])
        raise BadSetting(
            f"{name} is {shown}; it must be what people type, with https:// or http://: https://muster.example"
        )
    return url


def listener(text: str, *, name: str) -> str:
    """Return ADDRESS:PORT to listen at; empty where there is none. Raises BadSetting."""
    found = re.fullmatch(r"(?:\[[0-9a-fA-F:.]+\]|[^:\s]+):([0-9]{1,5})", text)
    if text and not (found and 0 < int(found[1]) < 2**16):
        raise BadSetting(
            f"{name} is {text[:100]}; it must be ADDRESS:PORT with a port up to 65535, such as 0.0.0.0:9090"
        )
    return text


_ENCODED = "a password with : / ? # [ or @ in it must be percent-encoded"


def _split(url: str, *, name: str) -> SplitResult:
    """Return the parts of an address. Raises BadSetting, whose words quote nothing of it."""
    try:
        return urlsplit(url)
    except ValueError:
        raise BadSetting(f"{name} is no address; {_ENCODED}") from None


def _port(parts: SplitResult, *, name: str) -> int | None:
    try:
        return parts.port
    except ValueError:  # its words would quote what may be a part of the password
        raise BadSetting(f"{name}: the port is no number up to 65535; {_ENCODED}") from None


def _is_of_web(url: str, parts: SplitResult) -> bool:
    try:
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    return is_one and not re.search(r"[\s#\x00-\x1f]", url)
