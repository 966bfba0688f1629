"""Every route. Tests walk this map: a route without an entry in the access table fails."""

from django.contrib.auth.decorators import login_required
from django.urls import include, path

from common.http import error_responses

from . import client_download, live
from .docs_page import ApiDocs
from .telemetry import health

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("live", live.stream, name="live"),
    path("client/", client_download.index, name="client"),
    path("client/<str:name>", client_download.file, name="client-file"),
    path("api/docs", login_required(ApiDocs.as_view()), name="api-docs"),
    path("api/v1/", include("controlplane.api_urls")),
    path("agent/v1/", include("jobs.ingest.urls")),
    path("", include("accounts.urls")),
    path("", include("credentials.urls")),
    path("", include("jobs.urls")),
]

handler400, handler403, handler404, handler500 = (
    error_responses.bad_request,
    error_responses.forbidden,
    error_responses.not_found,
    error_responses.broken,
)
