"""Headers that tell the browser what an answer of ours may do, and who may keep it."""

from django.conf import settings
from django.http import HttpResponse

from common.middleware import Middleware

# Nothing inline and nothing from elsewhere: whatever a log line or a job name smuggles into a page stays text.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "worker-src 'self'",
        "object-src 'none'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
# What Muster never asks a browser for, no page of it may ask for.
_DEVICES = "accelerometer camera display-capture geolocation gyroscope microphone midi payment usb serial hid"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Permissions-Policy": ", ".join(f"{name}=()" for name in _DEVICES.split()),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
YEAR_SECONDS = 31_536_000
# Browsers heed it over HTTPS only. Sent whenever the installation says that it has HTTPS, since TLS may end at a proxy.
TRANSPORT = f"max-age={YEAR_SECONDS}; includeSubDomains"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class SecurityHeaders(Middleware):
    """Adds the headers to every answer."""

    def after(self, response: HttpResponse) -> HttpResponse:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if settings.MUSTER_HTTPS:
            response.headers.setdefault("Strict-Transport-Security", TRANSPORT)
        # What one person was shown is not kept for the next one; an ETag may be asked about again.
        response.headers.setdefault("Cache-Control", "private, no-cache" if response.has_header("ETag") else "no-store")
        return response
