"""The real settings for commands that compare models and migrations only: with a database they would ask it, or wait for it."""

from controlplane.settings import *  # noqa: F403 - settings are meant to be taken whole

DATABASES = {"default": {"ENGINE": "django.db.backends.dummy"}}
