"""Hash passwords, 0.3 s of a core each by design, without a database connection, and only a few at a time.

Fifty sign-ins at once would otherwise hold every connection, and the pages of all teams would wait for them.
"""

import os

from django.contrib.auth.hashers import PBKDF2PasswordHasher

from common.db.db_connections import give_back
from common.http.request_origin import origin
from common.limits.turns import ThreadTurns

AT_ONCE = max(1, (os.cpu_count() or 1) // 2)  # the other cores are for pages
MOST_WAITING = 4  # per address
MOST_IN_ALL = 64  # each holds one of web's places for requests (controlplane/edge/room.py)
turns = ThreadTurns(
    AT_ONCE,
    each=AT_ONCE,
    most_waiting=MOST_WAITING,
    most_in_all=MOST_IN_ALL,
    words="many people are signing in at the moment",
)


class InTurn(PBKDF2PasswordHasher):
    """Django's own hasher with its number of rounds: what is stored is the same."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        give_back()
        with turns.turn(origin().ip):
            return super().encode(password, salt, iterations)
