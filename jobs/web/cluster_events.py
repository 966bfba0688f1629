"""/jobs/N/cluster-events: the Events of a job's cluster about its pods, read when the page is asked for."""

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.views.decorators.http import require_safe

from jobs.submission import cluster_events

from .responses import HtmxRequest, answer, readable_job, whole


@login_required
@require_safe
def page(request: HtmxRequest, pk: int) -> HttpResponse:
    job = readable_job(request, pk=pk)
    attempt = whole(request.GET.get("attempt")) or job.attempt
    found = cluster_events.of_attempt(job, attempt)
    context = {"job": job, "attempt": attempt, "events": found.events, "message": found.message}
    return answer(request, template="jobs/cluster_events.html", context=context)
