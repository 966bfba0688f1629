"""Muster's ASGI application within one that fails for every request, with a secret in its error."""

from typing import Any

from controlplane.asgi import application as muster


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        raise RuntimeError("password=hunter2 was in it")
    await muster(scope, receive, send)
