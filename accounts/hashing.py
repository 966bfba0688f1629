"""Passwords are stretched on purpose, 0.3 s of a core each: without a database connection, and only a few at a time.

Fifty sign-ins at once would otherwise hold every connection, and the pages of all teams would wait for them.
"""

import os
import threading

from django.contrib.auth.hashers import PBKDF2PasswordHasher

from controlplane.database import give_back

AT_ONCE = max(1, (os.cpu_count() or 1) // 2)  # the other cores are for pages
turns = threading.BoundedSemaphore(AT_ONCE)


class InTurn(PBKDF2PasswordHasher):
    """Django's own hash with its number of rounds: what is stored is the same."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        give_back()
        with turns:
            return super().encode(password, salt, iterations)
