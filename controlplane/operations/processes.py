"""The command lines of an installation's processes, for bin/demo and for muster-server. Imports no Django."""

from pathlib import Path

# A configuration that changes nothing: uvicorn would install its own handlers, which neither write JSON nor remove secrets.
_NO_LOG_OF_ITS_OWN = str(Path(__file__).with_name("uvicorn_log.json"))

WEB = (
    *("-m", "uvicorn", "controlplane.asgi:application", "--loop", "uvloop"),
    *("--http", "controlplane.edge.http_protocol:BoundedHttp"),
    *("--log-config", _NO_LOG_OF_ITS_OWN, "--no-access-log", "--timeout-graceful-shutdown", "3", "--lifespan", "on"),
    *("--no-server-header", "--no-proxy-headers"),  # which proxies are trusted: MUSTER_TRUSTED_PROXIES
)
TASKS = (
    *("-m", "celery", "--quiet", "-A", "controlplane.celery", "worker", "--pool", "threads", "--concurrency", "4"),
    *("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING"),
)
BEAT = ("manage.py", "beat")
WATCHER = ("manage.py", "watch")
