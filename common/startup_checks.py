"""Warn loudly at startup about what is exposed but should not be. Also part of `manage.py check`."""

import logging
from collections.abc import Iterable

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

log = logging.getLogger(__name__)
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1", "testserver"})


def open_to_others(hosts: Iterable[str]) -> list[str]:
    """Return the allowed host names that another machine could use."""
    return [host for host in hosts if host not in LOOPBACK]


@register("security", deploy=False)
def exposure(app_configs: object = None, **_: object) -> list[CheckMessage]:
    others = open_to_others(settings.ALLOWED_HOSTS)
    found: list[CheckMessage] = []
    if others and not settings.MUSTER_HTTPS:
        names = ", ".join(others)
        text = f"serves {names} without HTTPS: passwords, cookies and tokens can be read in transit"
        hint = "put a TLS proxy in front of it and set MUSTER_HTTPS=1, or limit MUSTER_ALLOWED_HOSTS to this machine"
        found.append(Warning(text, hint=hint, id="muster.W001"))
    if others and settings.DEBUG:
        text = "MUSTER_DEBUG shows the server's code and settings to anyone who causes an error"
        found.append(
            Error(text, hint="unset MUSTER_DEBUG, or limit MUSTER_ALLOWED_HOSTS to this machine", id="muster.E001")
        )
    return found


def announce() -> None:
    """Log the warnings once, when the web process starts; raises SystemExit on an error."""
    for one in exposure():
        log.warning("%s %s. What to do: %s", "!" * 8, one.msg, one.hint)
        if isinstance(one, Error):
            raise SystemExit(f"Muster does not start: {one.msg}; {one.hint}")
