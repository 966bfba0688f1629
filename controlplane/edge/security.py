"""Headers that limit in browsers what our responses may do, and where they may be cached."""

from django.conf import settings
from django.http import HttpResponse

from common.http.middleware import Middleware

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
# No page may use what Muster never needs from a browser.
_DEVICES = "accelerometer camera display-capture geolocation gyroscope microphone midi payment usb serial hid"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Permissions-Policy": ", ".join(f"{name}=()" for name in _DEVICES.split()),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
YEAR_SECONDS = 31_536_000
# Browsers heed it over HTTPS only. Sent whenever the installation declares HTTPS, since TLS may end at a proxy.
TRANSPORT = f"max-age={YEAR_SECONDS}; includeSubDomains"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class SecurityHeaders(Middleware):
    """Add the headers to every response."""

    def after(self, response: HttpResponse) -> HttpResponse:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if settings.MUSTER_HTTPS:
            response.headers.setdefault("Strict-Transport-Security", TRANSPORT)
        # One person's response must not be cached for the next; a response with an ETag may be revalidated.
        response.headers.setdefault("Cache-Control", "private, no-cache" if response.has_header("ETag") else "no-store")
        return response
