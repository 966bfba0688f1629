"""The pages of jobs, queues and webhooks."""

from django.urls import path

from .web import (
    actions,
    cluster_nodes,
    clusters,
    code,
    detail,
    listing,
    logs,
    nodes,
    queue_form,
    queue_template,
    queues,
    submit,
    volumes,
    webhooks,
)

urlpatterns = [
    path("", listing.home, name="home"),
    path("jobs", listing.jobs, name="jobs"),
    path("jobs/new", submit.new, name="job-new"),
    path("jobs/bulk", actions.bulk, name="jobs-bulk"),
    path("jobs/<int:pk>", detail.detail, name="job"),
    path("jobs/<int:pk>/code", code.code, name="job-code"),
    path("jobs/<int:pk>/logs", logs.log_page, name="job-logs"),
    path("jobs/<int:pk>/logs/find", logs.log_find, name="job-logs-find"),
    path("jobs/<int:pk>/logs.txt", logs.log_file, name="job-logs-file"),
    path("jobs/<int:pk>/cancel", actions.act, {"verb": "cancel"}, name="job-cancel"),
    path("jobs/<int:pk>/suspend", actions.act, {"verb": "suspend"}, name="job-suspend"),
    path("jobs/<int:pk>/resume", actions.act, {"verb": "resume"}, name="job-resume"),
    path("jobs/<int:pk>/resubmit", actions.resubmit, name="job-resubmit"),
    path("jobs/<int:pk>/delete-log", actions.delete_log, name="job-delete-log"),
    path("queues", queues.queues, name="queues"),
    path("make-queue", queue_form.make, name="queue-make"),
    path("queues/<slug:name>", queue_form.edit, name="queue-edit"),
    path("queues/<slug:name>/template", queue_template.template, name="queue-template"),
    path("clusters", clusters.page, name="clusters"),
    path("clusters/<slug:name>", clusters.cluster, name="cluster"),
    path("clusters/<slug:name>/nodes/<str:node>", cluster_nodes.node, name="cluster-node"),
    path("nodes", nodes.page, name="nodes"),
    path("teams/<slug:team>/volumes", volumes.volumes, name="team-volumes"),
    path("teams/<slug:team>/volumes/<slug:name>", volumes.volume, name="team-volume"),
    path("teams/<slug:team>/webhooks", webhooks.webhooks, name="team-webhooks"),
    path("teams/<slug:team>/webhooks/<slug:name>", webhooks.webhook, name="team-webhook"),
]
