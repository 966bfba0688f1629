"""All settings, read from the environment. `docs/settings.md` lists each; a test keeps that list complete.

CLUSTERS = {alias: {"BACKEND": module.Class, "OPTIONS": {...}}}, in the manner of Django's DATABASES.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured

from common import addresses, environment
from common.machine import job_user
from common.telemetry import log_config

from .operations import npm

BASE_DIR = Path(__file__).resolve().parent.parent
VERSION = "0.1.0"
_Number = TypeVar("_Number", int, float)


@contextmanager
def _reading() -> Iterator[None]:
    """Turn a bad setting into Django's error for it, which our commands show as one line."""
    try:
        yield
    except environment.BadSetting as error:
        raise ImproperlyConfigured(str(error)) from error


def _secret(name: str, default: str = "") -> str:
    """Return a secret from the environment, or from the file that NAME_FILE names there."""
    with _reading():
        return environment.secret(name, default)


def _flag(name: str, default: bool = False) -> bool:
    """Return whether a setting is on; in any case of letters, and unset where it is empty."""
    with _reading():
        return environment.flag(name, default)


def _number(name: str, default: _Number, *, least: float = 0) -> _Number:
    """Return a number from the environment, whole where the default is."""
    with _reading():
        return type(default)(environment.number(name, default, least=least))


def _networks(name: str) -> list[IPv4Network | IPv6Network]:
    """Return addresses or networks, separated by commas."""
    words = [one.strip() for one in os.environ.get(name, "").split(",") if one.strip()]
    try:
        return [ip_network(one) for one in words]
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}; it must be addresses or networks, such as 10.0.0.0/8") from error


def _clusters(text: str) -> dict[str, dict[str, Any]]:
    """Read alias -> BACKEND and OPTIONS; the value itself may hold secrets and stands in no error."""
    try:
        found = json.loads(text or "{}")
        if all(
            isinstance(one.get("BACKEND"), str) and isinstance(one.get("OPTIONS", {}), dict) for one in found.values()
        ):
            return {alias: {"OPTIONS": {}, **one} for alias, one in found.items()}
    except (ValueError, AttributeError):
        pass
    raise ImproperlyConfigured(
        'MUSTER_CLUSTERS must be JSON of the form {"ALIAS": {"BACKEND": "CLASS", "OPTIONS": {...}}} (docs/kubernetes.md)'
    )


DATA_DIR = Path(os.environ.get("MUSTER_DATA_DIR", BASE_DIR / ".muster"))
DEBUG = _flag("MUSTER_DEBUG")
SECRET_KEY = _secret("MUSTER_SECRET_KEY")
SECRET_KEY_FALLBACKS = [one for word in _secret("MUSTER_OLD_SECRET_KEYS").split(",") if (one := word.strip())]
if not SECRET_KEY:
    raise ImproperlyConfigured(
        "MUSTER_SECRET_KEY is not set, nor MUSTER_SECRET_KEY_FILE; bin/demo generates one, an installation must set its own"
    )
ALLOWED_HOSTS = os.environ.get("MUSTER_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]").split(",")
CSRF_TRUSTED_ORIGINS = [one for one in os.environ.get("MUSTER_TRUSTED_ORIGINS", "").split(",") if one]
MUSTER_HTTPS = _flag("MUSTER_HTTPS")
# Proxies whose X-Forwarded-For is trusted; no other sender's is.
TRUSTED_PROXIES = _networks("MUSTER_TRUSTED_PROXIES")
with _reading():  # for links made outside a request
    PUBLIC_URL = addresses.pages(os.environ.get("MUSTER_PUBLIC_URL", "").strip(), name="MUSTER_PUBLIC_URL")
WEBHOOK_NETWORKS = _networks("MUSTER_WEBHOOK_NETWORKS")  # private ones that webhooks may reach
MUSTER_CLUSTER_NETWORKS = _networks("MUSTER_CLUSTER_NETWORKS")  # private ones where added clusters may be

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django.contrib.postgres",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "axes",
    "django_htmx",
    "accounts",
    "queues",
    "workspaces",
    "credentials",
    "volumes",
    "jobs",
    "controlplane",
]
# The address of an OpenTelemetry collector. Above MIDDLEWARE, which has one more where it is set.
with _reading():
    MUSTER_TRACES = addresses.collector(os.environ.get("MUSTER_TRACES", ""), name="MUSTER_TRACES")
MUSTER_TRACES_SAMPLE = _number("MUSTER_TRACES_SAMPLE", 0.1)
if MUSTER_TRACES_SAMPLE > 1:
    raise ImproperlyConfigured(
        f"MUSTER_TRACES_SAMPLE is {MUSTER_TRACES_SAMPLE:g}; it is the share of traces that are recorded, from 0 to 1, such as 0.1"
    )
MUSTER_TRACES_HEADERS = _secret("OTEL_EXPORTER_OTLP_HEADERS")

MIDDLEWARE = [
    "common.db.db_connections.GiveBack",
    "common.http.request_ids.NoteRequestId",
    *(["controlplane.telemetry.traced.Traced"] if MUSTER_TRACES else []),
    "controlplane.telemetry.metrics.Timed",
    "django.middleware.security.SecurityMiddleware",
    "controlplane.edge.security.SecurityHeaders",
    "common.http.error_responses.Fragments",
    "controlplane.edge.limits.Limits",
    "common.http.rest.ConditionalGet",
    "common.http.request_origin.NoteOrigin",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "controlplane.edge.room.LetIn",
    "accounts.signin.session_lifetime.SessionLifetime",
    "accounts.signin.required_steps.FirstThings",
    "controlplane.edge.rates.Rates",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
    # Innermost, because it is synchronous: so the whole chain runs in one hop to a thread, not one per middleware.
    "whitenoise.middleware.WhiteNoiseMiddleware",
]
ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

_database_url = _secret("DATABASE_URL", "postgres://muster@127.0.0.1:5432/muster")
REDIS_URL = _secret("REDIS_URL", "redis://127.0.0.1:6379/0")
MUSTER_DB_SECONDS = _number("MUSTER_DB_SECONDS", 20, least=1)
with _reading():
    DATABASES = {
        "default": addresses.database(
            _database_url, pool=_number("MUSTER_DB_POOL", 8, least=1), seconds=MUSTER_DB_SECONDS
        )
    }
    CELERY_BROKER_USE_SSL = addresses.broker_tls(REDIS_URL)
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True  # a restarted Postgres leaves dead connections in the pool
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "accounts.signin.password_rules.CommonCore"},
]
PASSWORD_HASHERS = ["accounts.signin.password_hashing.InTurn"]
# The first one refuses after too many failures; the second one checks the password.
AUTHENTICATION_BACKENDS = ["accounts.signin.axes_backend.Pausing", "django.contrib.auth.backends.ModelBackend"]
AXES_FAILURE_LIMIT = _number("MUSTER_LOGIN_FAILURES", 5)
AXES_COOLOFF_TIME = timedelta(minutes=_number("MUSTER_LOGIN_PAUSE_MINUTES", 15))
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]  # so nobody can lock out another user from elsewhere
AXES_LOCKOUT_CALLABLE = "accounts.signin.lockout.answer"
AXES_CLIENT_IP_CALLABLE = "accounts.signin.lockout.client_address"
AXES_RESET_ON_SUCCESS = True
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = True  # the audit records sign-ins
AXES_SENSITIVE_PARAMETERS = ["csrfmiddlewaretoken", "password"]
AXES_VERBOSE = False
AXES_CLIENT_STR_CALLABLE = "accounts.signin.lockout.who"
LOGIN_URL = "login"
CSRF_FAILURE_VIEW = "common.http.error_responses.forged"
LOGIN_REDIRECT_URL = "jobs"
LOGOUT_REDIRECT_URL = "login"
USE_TZ = True
USE_I18N = False  # everything is in English; looking for a language would cost each page a tenth of its time
TIME_ZONE = "UTC"
STATIC_URL = "static/"
STATIC_ROOT = os.environ.get("MUSTER_STATIC_ROOT") or None  # where they were collected (image, demo)
# Libraries from the npm registry (controlplane/operations/npm.py); where they could not be fetched, pages work without.
HAS_CHART_LIBRARY = (Path(STATIC_ROOT) / "npm" / "uplot.js").exists() if STATIC_ROOT else npm.folder().exists()
STATICFILES_DIRS = [
    *([BASE_DIR / "static"] if (BASE_DIR / "static").exists() else []),  # the image has the collected ones only
    *([("npm", npm.folder())] if npm.folder().exists() else []),
]
WHITENOISE_USE_FINDERS = STATIC_ROOT is None
WHITENOISE_AUTOREFRESH = False
# Code and logs of jobs, through Django's storage API: in a folder, or in a bucket.
MEDIA_ROOT = DATA_DIR / "files"
with _reading():
    _files = addresses.files(_secret("MUSTER_FILES"), name="MUSTER_FILES")
    _old = _secret("MUSTER_OLD_FILES")
    _old_files = addresses.files("" if _old == "folder" else _old, name="MUSTER_OLD_FILES")
if _old:
    _files = {"BACKEND": "common.files.file_store.MovingStorage", "OPTIONS": {"new": _files, "old": _old_files}}
STORAGES = {
    "default": _files,
    # Collected files have their hash in their name, so that browsers keep them for good.
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if STATIC_ROOT
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 2**20  # controlplane/edge/limits.py bounds bodies, route by route
MUSTER_MAX_WORKSPACE_BYTES = _number("MUSTER_MAX_WORKSPACE_BYTES", 256 * 2**20)
MUSTER_MAX_STORE_BYTES = _number("MUSTER_MAX_STORE_BYTES", 20 * 2**30)
# How long after its attempt an agent may deliver what it still has. An agent itself continues for 60 s after its
# replica ended (docs/wire.md); one that was cut off needs those from the moment it can connect again.
MUSTER_AGENT_DRAIN_SECONDS = _number("MUSTER_AGENT_DRAIN_SECONDS", 300.0)
if MUSTER_AGENT_DRAIN_SECONDS < 60:
    raise ImproperlyConfigured(
        f"MUSTER_AGENT_DRAIN_SECONDS is {MUSTER_AGENT_DRAIN_SECONDS:g}; agents send for 60 s after their replica ended, so it must be at least 60"
    )
MUSTER_LOG_JOB_BYTES = _number("MUSTER_LOG_JOB_BYTES", 2 * 2**30)  # as stored; 0 is no limit
MUSTER_LOG_TEAM_BYTES = _number("MUSTER_LOG_TEAM_BYTES", 20 * 2**30)
MUSTER_LOG_FREE_BYTES = _number("MUSTER_LOG_FREE_BYTES", 2**30)
MUSTER_LOG_DAYS = _number("MUSTER_LOG_DAYS", 90.0)
MUSTER_AUDIT_DAYS = _number("MUSTER_AUDIT_DAYS", 0.0)  # 0: kept forever
if 0 < MUSTER_AUDIT_DAYS < 90 or MUSTER_AUDIT_DAYS < 0:
    raise ImproperlyConfigured(f"MUSTER_AUDIT_DAYS is {MUSTER_AUDIT_DAYS:g}; it must be 0 (forever) or at least 90")
MUSTER_JOB_DAYS = _number("MUSTER_JOB_DAYS", 30.0)

CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
# A doorbell may be lost (the sweeper comes) or late, but ringing must never delay the caller.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 5,
    "socket_connect_timeout": 0.2,
    "visibility_timeout": 60,
    "retry_policy": {"max_retries": 0},
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_CHANNEL_ERROR_RETRY = True  # a Redis that refuses is waited for like one that is away
CELERY_WORKER_CONSUMER = "controlplane.broker:PatientConsumer"
CELERY_BEAT_SCHEDULER = "controlplane.broker:PatientScheduler"
# Concerns only tasks that are acknowledged late, of which there are none; unset, Celery warns of it at each lost connection.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "beat")
CELERY_BEAT_SCHEDULE = {
    "garbage": {"task": "workspaces.collect_garbage", "schedule": 86400.0, "options": {"expires": 3600}},
    "volumes": {"task": "jobs.refresh_volumes", "schedule": 60.0, "options": {"expires": 60}},
    "keep": {"task": "jobs.keep", "schedule": 60.0, "options": {"expires": 60}},
    "check_clusters": {"task": "jobs.check_clusters", "schedule": 30.0, "options": {"expires": 30}},
    "topology": {"task": "jobs.note_topology", "schedule": 60.0, "options": {"expires": 60}},
    "idle": {"task": "jobs.note_idle_gpus", "schedule": 60.0, "options": {"expires": 60}},
    "recent_use": {"task": "jobs.note_recent_use", "schedule": 300.0, "options": {"expires": 300}},
    "nodes": {"task": "jobs.note_nodes", "schedule": 60.0, "options": {"expires": 60}},
    "strays": {"task": "jobs.strays", "schedule": 60.0, "options": {"expires": 60}},
    "pack": {"task": "jobs.pack_logs", "schedule": 60.0, "options": {"expires": 60}},
    "roll_up": {"task": "jobs.roll_up", "schedule": 10.0, "options": {"expires": 10}},
    "sweep": {"task": "jobs.sweep_logs", "schedule": 600.0, "options": {"expires": 600}},
    "trim": {"task": "accounts.trim", "schedule": 86400.0, "options": {"expires": 3600}},
    "collect": {"task": "jobs.collect", "schedule": 86400.0, "options": {"expires": 3600}},
}

# The image turns local jobs off: they would be processes in the control plane's own container.
_LOCAL: dict[str, dict[str, Any]] = {
    "local": {"BACKEND": "jobs.clusters.local.LocalCluster", "OPTIONS": {"ROOT": str(DATA_DIR / "local")}}
}
CLUSTERS: dict[str, dict[str, Any]] = _clusters(_secret("MUSTER_CLUSTERS")) or (
    _LOCAL if _flag("MUSTER_LOCAL_JOBS", default=True) else {}
)

MUSTER_LOCAL_SLOT_MIB = _number("MUSTER_LOCAL_SLOT_MIB", 1024)  # memory of this machine for a slot; 0: no bound

MUSTER_TEAMS_TRUST = _flag("MUSTER_TEAMS_TRUST")
MUSTER_JOB_USER = os.environ.get("MUSTER_JOB_USER", "")
try:
    job_user.find(MUSTER_JOB_USER)
except job_user.BadJobUser as error:
    raise ImproperlyConfigured(str(error)) from error
MUSTER_JOB_ENV = [one.strip() for one in os.environ.get("MUSTER_JOB_ENV", "").split(",") if one.strip()]
for _name in MUSTER_JOB_ENV:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", _name):
        raise ImproperlyConfigured(
            f"MUSTER_JOB_ENV names {_name}; it must be names of variables separated by commas, or PREFIX_*"
        )

SESSION_ENGINE = "accounts.session_store"
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = MUSTER_HTTPS
if MUSTER_HTTPS:  # browsers accept these names only with Secure, for this host only and for all paths
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-muster-session", "__Host-muster-csrf"
MUSTER_SESSION_SECONDS = 3600 * _number("MUSTER_SESSION_HOURS", 168)
MUSTER_SESSION_IDLE_SECONDS = 3600 * _number("MUSTER_SESSION_IDLE_HOURS", 24)
SESSION_COOKIE_AGE = MUSTER_SESSION_SECONDS
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"  # no cookie of its own
# bin/demo sets it: whoever can read its password on that terminal has the files and the database too. A container's log
# has other readers.
MUSTER_KEEP_FIRST_PASSWORD = _flag("MUSTER_KEEP_FIRST_PASSWORD")
MUSTER_NODE_NAMES = os.environ.get("MUSTER_NODE_NAMES", "").strip() or "all"
if MUSTER_NODE_NAMES not in ("all", "admins"):
    raise ImproperlyConfigured(
        f"MUSTER_NODE_NAMES is {MUSTER_NODE_NAMES[:40]}; it must be all (everybody who sees a cluster) or admins (platform administrators)"
    )
# Hours after which what a team borrowed counts half as much; 0: only what it borrows now counts.
MUSTER_FAIR_SHARE_HALF_LIFE = _number("MUSTER_FAIR_SHARE_HALF_LIFE", 168)
MUSTER_SECOND_FACTOR = os.environ.get("MUSTER_SECOND_FACTOR", "optional")
if MUSTER_SECOND_FACTOR not in ("off", "optional", "admins", "all"):
    raise ImproperlyConfigured(
        f"MUSTER_SECOND_FACTOR is {MUSTER_SECOND_FACTOR}; it must be off, optional, admins or all"
    )
MUSTER_RATE_USER = _number("MUSTER_RATE_USER", 6000)  # requests per minute; 0 is no limit
MUSTER_RATE_AGENT = _number("MUSTER_RATE_AGENT", 6000)
MUSTER_RATE_LOGIN = _number("MUSTER_RATE_LOGIN", 60)
# Our own middleware sends HSTS, also where TLS ends at a proxy; redirecting is the proxy's task, since programs must
# not be redirected.
SILENCED_SYSTEM_CHECKS = ["security.W004", "security.W008"]
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if TRUSTED_PROXIES:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "common.http.parameters.KnownParameters",
    ],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["common.http.json_input.StrictJSONParser"],
    "DEFAULT_THROTTLE_CLASSES": ["controlplane.edge.rates.UserRate"],
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS returns nothing; the schema describes the API
    "EXCEPTION_HANDLER": "common.http.rest.problem",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Muster",
    "VERSION": VERSION,
    "DESCRIPTION": "Launch, watch and end distributed training jobs.",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "controlplane.schema.with_refusals",
    ],
    # Two fields are called "kind"; without these names the schema would name one of them by a hash.
    "ENUM_NAME_OVERRIDES": {"FailureKind": "jobs.api.serializers.KINDS", "EntryKind": ["file", "link"]},
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "docExpansion": "list", "persistAuthorization": False},
}

# "ADDRESS:PORT", apart from pages and API: it needs no sign-in, and shows the names of teams and queues.
with _reading():
    MUSTER_METRICS = addresses.listener(os.environ.get("MUSTER_METRICS", "").strip(), name="MUSTER_METRICS")

LOGGING = log_config.configuration(
    level=os.environ.get("MUSTER_LOG_LEVEL", "").strip() or "INFO",
    events=os.environ.get("MUSTER_EVENT_LOG", "off"),
    style=os.environ.get("MUSTER_LOG_FORMAT", "text"),
)
