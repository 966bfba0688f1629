from django.urls import path

from . import agent_views

urlpatterns = [
    path("workspace", agent_views.workspace, name="agent-workspace"),
    path("batches", agent_views.batches, name="agent-batches"),
]
