"""Sign what is sent, in the manner of Standard Webhooks, so that a receiver knows who sent it and when. Pure.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable
from datetime import datetime

PREFIX = "whsec_"


def secret_of(key: bytes) -> str:
    """Return a key as the text that an administrator copies to the receiver."""
    return PREFIX + base64.b64encode(key).decode()


def signature(secret: str, *, uid: str, seconds: int, body: bytes) -> str:
    """Return `v1,` and the HMAC-SHA256 over `uid.seconds.body`, in base64. `seconds` since the epoch."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = f"{uid}.{seconds}.".encode() + body
    return f"v1,{base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()}"


def headers(*, uid: str, at: datetime, body: bytes, secrets: Iterable[str]) -> dict[str, str]:
    """Return the three headers of the specification; one signature for each secret that is valid now."""
    seconds = int(at.timestamp())
    signed = [signature(one, uid=uid, seconds=seconds, body=body) for one in secrets]
    return {"webhook-id": uid, "webhook-timestamp": str(seconds), "webhook-signature": " ".join(signed)}
