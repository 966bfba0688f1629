"""The web process: `uvicorn controlplane.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
_django = get_asgi_application()

from django.conf import settings  # noqa: E402 - needs what the line above set up
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware  # noqa: E402

from .exposure import announce  # noqa: E402
from .limits import Bounded  # noqa: E402

application = Bounded(_django)
if settings.MUSTER_TRUSTED_PROXIES:
    # Whose X-Forwarded-For and -Proto are believed. Nobody else's: an address decides who is locked out.
    application = ProxyHeadersMiddleware(application, trusted_hosts=settings.MUSTER_TRUSTED_PROXIES)  # type: ignore
announce()
