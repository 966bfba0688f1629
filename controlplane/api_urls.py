"""/api/v1: every route of the REST API."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from jobs.api.cluster_entries import ClustersAndNewView, ClusterView, RemoveClusterView
from jobs.api.cluster_nodes import ClusterNodesView, ClusterNodeView
from jobs.api.clusters import ClusterCheckView, PodChecksView, PodCheckView
from jobs.api.namespaces import TeamNamespacesView, TeamNamespaceView
from jobs.api.nodes import ExcludedNodesView, ExcludedNodeView, SuspectedNodesView
from jobs.api.plans import JobFieldsView, PlanView
from jobs.api.queues import AllowedOneView, AllowedView, CeilingsView, CeilingView, QueueViewSet
from jobs.api.quota_requests import QuotaRequestsView, QuotaRequestView
from jobs.api.quotas import CohortsView, CohortView, FlavorsView, FlavorView, QuotasView, QuotaView
from jobs.api.usage import UsageView
from jobs.api.viewset import JobViewSet
from jobs.api.volumes import VolumesView, VolumeView
from jobs.api.webhooks import AgainView, DeliveriesView, PingView, RotateView, WebhooksView, WebhookView

from .docs_page import ApiSchema

router = SimpleRouter(trailing_slash=False)
router.register("jobs", JobViewSet, basename="api-job")
router.register("queues", QueueViewSet, basename="api-queue")

WEBHOOKS = "teams/<slug:team>/webhooks"

urlpatterns = [
    path("", include("accounts.api_urls")),
    path("", include("workspaces.urls")),
    path("", include("credentials.api_urls")),
    path("teams/<slug:team>/ceilings", CeilingsView.as_view(), name="api-ceilings"),
    path("teams/<slug:team>/ceilings/<slug:resource>", CeilingView.as_view(), name="api-ceiling"),
    path("teams/<slug:team>/quotas", QuotasView.as_view(), name="api-quotas"),
    path("teams/<slug:team>/quotas/<slug:flavor>", QuotaView.as_view(), name="api-quota"),
    path("flavors", FlavorsView.as_view(), name="api-flavors"),
    path("flavors/<slug:name>", FlavorView.as_view(), name="api-flavor"),
    path("cohorts", CohortsView.as_view(), name="api-cohorts"),
    path("cohorts/<slug:name>", CohortView.as_view(), name="api-cohort"),
    path("teams/<slug:team>/volumes", VolumesView.as_view(), name="api-volumes"),
    path("teams/<slug:team>/volumes/<slug:name>", VolumeView.as_view(), name="api-volume"),
    path("teams/<slug:team>/allowed", AllowedView.as_view(), name="api-allowed"),
    path("teams/<slug:team>/allowed/<int:pk>", AllowedOneView.as_view(), name="api-allowed-one"),
    path(WEBHOOKS, WebhooksView.as_view(), name="api-webhooks"),
    path(f"{WEBHOOKS}/<slug:name>", WebhookView.as_view(), name="api-webhook"),
    path(f"{WEBHOOKS}/<slug:name>/rotate", RotateView.as_view(), name="api-webhook-rotate"),
    path(f"{WEBHOOKS}/<slug:name>/test", PingView.as_view(), name="api-webhook-test"),
    path(f"{WEBHOOKS}/<slug:name>/deliveries", DeliveriesView.as_view(), name="api-deliveries"),
    path(f"{WEBHOOKS}/<slug:name>/deliveries/<int:pk>/again", AgainView.as_view(), name="api-delivery-again"),
    path("clusters", ClustersAndNewView.as_view(), name="api-clusters"),
    path("clusters/<str:name>", ClusterView.as_view(), name="api-cluster"),
    path("clusters/<str:name>/remove", RemoveClusterView.as_view(), name="api-cluster-remove"),
    path("clusters/<str:name>/namespaces", TeamNamespacesView.as_view(), name="api-team-namespaces"),
    path("clusters/<str:name>/namespaces/<str:team>", TeamNamespaceView.as_view(), name="api-team-namespace"),
    path("clusters/<str:name>/check", ClusterCheckView.as_view(), name="api-cluster-check"),
    path("clusters/<str:name>/nodes", ClusterNodesView.as_view(), name="api-cluster-nodes"),
    path("clusters/<str:name>/nodes/<str:node>", ClusterNodeView.as_view(), name="api-cluster-node"),
    path("clusters/<str:name>/pod-checks", PodChecksView.as_view(), name="api-pod-checks"),
    path("clusters/<str:name>/pod-checks/<int:pk>", PodCheckView.as_view(), name="api-pod-check"),
    path("excluded-nodes", ExcludedNodesView.as_view(), name="api-excluded-nodes"),
    path("excluded-nodes/<int:pk>", ExcludedNodeView.as_view(), name="api-excluded-node"),
    path("suspected-nodes", SuspectedNodesView.as_view(), name="api-suspected-nodes"),
    path("job-fields", JobFieldsView.as_view(), name="api-job-fields"),
    path("plans", PlanView.as_view(), name="api-plans"),
    path("quota-requests", QuotaRequestsView.as_view(), name="api-quota-requests"),
    path("quota-requests/<int:pk>", QuotaRequestView.as_view(), name="api-quota-request"),
    path("usage", UsageView.as_view(), name="api-usage"),
    path("schema", ApiSchema.as_view(), name="api-schema"),
    path("", include(router.urls)),
]
