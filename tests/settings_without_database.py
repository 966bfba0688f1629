"""The real settings without a database, for commands that only compare models and migrations."""

from controlplane.settings import *  # noqa: F403 - settings are meant to be taken whole

DATABASES = {"default": {"ENGINE": "django.db.backends.dummy"}}
