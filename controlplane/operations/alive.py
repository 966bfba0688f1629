"""The image's health check: exit 0 while the web process of this container answers. Standard library only."""

import http.client
import os
import sys

SECONDS = 4


def host() -> str:
    """Return a host name for which requests are answered (MUSTER_ALLOWED_HOSTS)."""
    first = os.environ.get("MUSTER_ALLOWED_HOSTS", "").split(",")[0].strip().lstrip(".")
    return "localhost" if first in ("", "*") else first


def main() -> int:
    server = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("MUSTER_LISTEN_PORT", "8000")), timeout=SECONDS)
    try:
        server.request("GET", "/healthz", headers={"Host": host()})
        return 0 if server.getresponse().status == 200 else 1
    except (OSError, http.client.HTTPException) as error:
        print(f"the web process does not answer: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
