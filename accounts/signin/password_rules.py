"""Password rules beyond Django's own. There is no rule about kinds of characters."""

import re

from django.contrib.auth.password_validation import CommonPasswordValidator
from django.core.exceptions import ValidationError

from accounts.models import User

# Words that are likely guesses here. docs/sign-in.md lists them too.
OF_THE_HOUSE = ("muster", "torchrun", "pytorch", "training", "cluster", "kubernetes", "nvidia", "gradient", "dashboard")
_ROWS = ("1234567890", "abcdefghijklmnopqrstuvwxyz", "qwertyuiopasdfghjklzxcvbnm")
_RUNS = [one for row in _ROWS for one in (row * 4, row[::-1] * 4)]
# The trailing run matches only from where it begins; otherwise a megabyte of signs would take hours.
_AROUND = re.compile(r"\A[\W\d_]++|(?<![\W\d_])[\W\d_]++\Z")


class CommonCore:
    """Refuse a common password with padding: `password-1234!`, `12qwertyuiop34`, `letmeinletmein`.

    Few of the list's passwords have 12 characters, so comparing whole ones would rarely match anything.
    """

    def __init__(self) -> None:
        self.known = CommonPasswordValidator().passwords

    def validate(self, password: str, user: User | None = None) -> None:
        cores = {core for core in _cores(password.lower()) if len(core) >= 4 or len(set(password)) < 5}
        own = {user.get_username().lower()} if user else set()
        is_run = any(password.lower() in run for run in _RUNS)
        if is_run or cores & self.known or cores & own or any(core in OF_THE_HOUSE for core in cores):
            raise ValidationError(
                "This is a common password with a few characters added. Use several unrelated words.",
                code="common_core",
            )

    def get_help_text(self) -> str:
        return "Not a common password, with or without digits or symbols around it."


def _cores(text: str) -> set[str]:
    """Return the text, the text without what surrounds its letters, its letters only, and each one's repeating unit."""
    bare, letters = _AROUND.sub("", text), re.sub(r"[\W\d_]+", "", text)
    return {text, bare, letters, *(_unit(one) for one in (text, bare, letters))}


def _unit(text: str) -> str:
    """abcabc -> abc"""
    at = (text + text).find(text, 1)
    return text[:at] if 0 < at < len(text) else text
