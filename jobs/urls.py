"""The pages of jobs and queues."""

from django.urls import path

from .views import acts, code, detail, listing, log_pane, queue_form, queue_page, submit

urlpatterns = [
    path("", listing.home, name="home"),
    path("jobs", listing.jobs, name="jobs"),
    path("jobs/new", submit.new, name="job-new"),
    path("jobs/<int:pk>", detail.detail, name="job"),
    path("jobs/<int:pk>/code", code.code, name="job-code"),
    path("jobs/<int:pk>/logs", log_pane.log_page, name="job-logs"),
    path("jobs/<int:pk>/logs/find", log_pane.log_find, name="job-logs-find"),
    path("jobs/<int:pk>/logs.txt", log_pane.log_file, name="job-logs-file"),
    path("jobs/<int:pk>/cancel", acts.act, {"verb": "cancel"}, name="job-cancel"),
    path("jobs/<int:pk>/suspend", acts.act, {"verb": "suspend"}, name="job-suspend"),
    path("jobs/<int:pk>/resume", acts.act, {"verb": "resume"}, name="job-resume"),
    path("jobs/<int:pk>/resubmit", acts.resubmit, name="job-resubmit"),
    path("jobs/<int:pk>/delete-log", acts.delete_log, name="job-delete-log"),
    path("queues", queue_page.queues, name="queues"),
    path("make-queue", queue_form.make, name="queue-make"),
    path("queues/<slug:name>", queue_form.edit, name="queue-edit"),
]
