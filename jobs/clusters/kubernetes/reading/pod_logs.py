"""Read a container's own log through the API server: if agents cannot reach us, and for lines they did not send."""

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime

from common.errors import Unreachable

from ..api.client import Api
from ..build.manifests import CONTAINER

READ_SECONDS = 3.0  # per call: a kubelet that does not answer must not delay a visit
NOTHING_YET = (400, 404)  # its container has not started, or is gone
_ERROR = b'{"type": "ERROR"'  # what `Api.lines` yields for a bad answer; a line of a log begins with its time


async def read(
    api: Api, path: str, *, since: float | None, take: Callable[[bytes], bool], is_restarted: bool = False
) -> bool:
    """Pass each line to `take` until it returns False. Return whether the log was read to its end.

    `is_restarted`: the replica's container ended, and the lines are its, not those of the one started after it. Raises
    Unreachable if nothing could be read.
    """
    params = {"container": CONTAINER, "timestamps": "true"}
    if is_restarted:
        params["previous"] = "true"
    if since is not None:
        params["sinceTime"] = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    count = 0
    try:
        async with (
            asyncio.timeout(READ_SECONDS),
            aclosing(api.lines(path, params=params, silence_seconds=READ_SECONDS)) as lines,
        ):
            async for line in lines:
                if not count and line.startswith(_ERROR):
                    return _nothing(line)
                count += 1
                if not take(line):
                    return False
    except (TimeoutError, Unreachable) as error:
        if not count:
            raise Unreachable(f"the log {path} cannot be read: {error or 'no answer in time'}") from error
        return False
    return True


def _nothing(line: bytes) -> bool:
    status = json.loads(line)["object"]
    if status.get("code") in NOTHING_YET:
        return True
    raise Unreachable(f"its log cannot be read: {status.get('message')}")
