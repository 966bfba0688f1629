"""The real settings; only passwords are hashed cheaply, since every test makes its people anew."""

from controlplane.settings import *  # noqa: F403 - settings are meant to be taken whole

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
