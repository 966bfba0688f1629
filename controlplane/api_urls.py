"""/api/v1: every route of the REST API."""

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView
from rest_framework.routers import SimpleRouter

from accounts.api import LoginView, MeView
from jobs.api import JobViewSet
from jobs.queue_api import QueueViewSet

router = SimpleRouter(trailing_slash=False)
router.register("jobs", JobViewSet, basename="api-job")
router.register("queues", QueueViewSet, basename="api-queue")

urlpatterns = [
    path("login", LoginView.as_view(), name="api-login"),
    path("me", MeView.as_view(), name="api-me"),
    path("", include("workspaces.urls")),
    path("schema", SpectacularAPIView.as_view(), name="api-schema"),
    path("", include(router.urls)),
]
