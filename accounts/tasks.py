"""Celery tasks on data kept about people."""

from celery import shared_task
from django.utils import timezone

from .trimming import trim


@shared_task(name="accounts.trim")
def trim_accounts() -> None:
    trim(now=timezone.now())
