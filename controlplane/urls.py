"""Every route. `tests` walk this map: a route without an entry in the access table fails."""

from django.urls import include, path

from . import health, live

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("live", live.stream, name="live"),
    path("api/v1/", include("controlplane.api_urls")),
    path("agent/v1/", include("jobs.agent_urls")),
    path("", include("accounts.urls")),
    path("", include("jobs.urls")),
]
