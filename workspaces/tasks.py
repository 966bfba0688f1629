"""What Celery runs for the store of code."""

from celery import shared_task

from .garbage import collect


@shared_task(name="workspaces.collect_garbage")
def collect_garbage() -> None:
    collect()
