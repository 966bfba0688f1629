"""Text from a job, its code or its output is executed by no browser."""

from jobs.models import Job
from tests.db.security.test_inert import hostile_job


def test_a_browser_executes_none_of_it(page, lab):
    """No dialog opens, and the console has no error: a script blocked by our policy would be one."""
    job = hostile_job(lab)
    opened: list[str] = []
    page.on("dialog", lambda dialog: (opened.append(dialog.message), dialog.dismiss()))
    before = Job.objects.values_list("cancel_requested_at", flat=True).get(pk=job.pk)
    for path in (
        "/jobs",
        f"/jobs/{job.pk}",
        f"/jobs/{job.pk}?view=list",
        f"/jobs/{job.pk}/logs",
        f"/jobs/new?from={job.pk}",
        "/queues",
    ):
        page.goto(path)
        page.evaluate("document.body.dispatchEvent(new Event('live-sync'))")
        page.wait_for_load_state()
        assert page.locator("script:not([src])").count() == 0
    for cell in page.locator("[title]").all()[:5]:
        cell.hover()
    assert opened == []
    assert Job.objects.values_list("cancel_requested_at", flat=True).get(pk=job.pk) == before
