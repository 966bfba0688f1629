"""/api/v1/workspaces."""

from django.urls import path

from . import api

urlpatterns = [
    path("workspaces", api.WorkspacesView.as_view(), name="api-workspaces"),
    path("workspaces/missing", api.MissingView.as_view(), name="api-workspaces-missing"),
    path("workspaces/files", api.ReceiveView.as_view(), name="api-workspaces-files"),
    path("workspaces/<int:pk>", api.WorkspaceView.as_view(), name="api-workspace"),
    path("workspaces/<int:pk>/files", api.FilesView.as_view(), name="api-workspace-files"),
    path("workspaces/<int:pk>/files/<path:path>", api.FileView.as_view(), name="api-workspace-file"),
    path("workspaces/<int:pk>/diff/<int:other>", api.DiffView.as_view(), name="api-workspace-diff"),
]
