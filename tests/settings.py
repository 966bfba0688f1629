"""The real settings with a cheap password hasher, since every test creates its users."""

from controlplane.settings import *  # noqa: F403 - settings are meant to be taken whole

del DATABASES["default"]["OPTIONS"]["options"]  # noqa: F405 - a test is one long transaction
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
