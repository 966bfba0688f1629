"""Celery tasks of the code store."""

from celery import shared_task

from .garbage import collect


@shared_task(name="workspaces.collect_garbage")
def collect_garbage() -> None:
    collect()
