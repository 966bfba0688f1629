"""The command lines of an installation's processes, for bin/demo and for muster-server. Imports no Django."""

WEB = (
    *("-m", "uvicorn", "controlplane.asgi:application", "--loop", "uvloop"),
    *("--http", "controlplane.http_protocol:BoundedHttp"),
    *("--no-access-log", "--timeout-graceful-shutdown", "3", "--lifespan", "on"),
    *("--no-server-header", "--no-proxy-headers"),  # which proxies are trusted: MUSTER_TRUSTED_PROXIES
)
TASKS = (
    *("-m", "celery", "-A", "controlplane.celery", "worker", "--pool", "threads", "--concurrency", "4"),
    *("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING"),
)
BEAT = ("manage.py", "beat")
WATCHER = ("manage.py", "watch")
