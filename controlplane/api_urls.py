"""/api/v1: every route of the REST API."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from jobs.api.plans import JobFieldsView, PlanView
from jobs.api.queues import CeilingsView, CeilingView, QueueViewSet
from jobs.api.viewset import JobViewSet

from .docs_page import ApiSchema

router = SimpleRouter(trailing_slash=False)
router.register("jobs", JobViewSet, basename="api-job")
router.register("queues", QueueViewSet, basename="api-queue")

urlpatterns = [
    path("", include("accounts.api_urls")),
    path("", include("workspaces.urls")),
    path("teams/<slug:team>/ceilings", CeilingsView.as_view(), name="api-ceilings"),
    path("teams/<slug:team>/ceilings/<slug:resource>", CeilingView.as_view(), name="api-ceiling"),
    path("job-fields", JobFieldsView.as_view(), name="api-job-fields"),
    path("plans", PlanView.as_view(), name="api-plans"),
    path("schema", ApiSchema.as_view(), name="api-schema"),
    path("", include(router.urls)),
]
