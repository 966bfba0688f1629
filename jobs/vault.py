"""Secrets of a job at rest: encrypted with a key made from SECRET_KEY, readable by nothing but a launch.

Fernet (AES-128-CBC with HMAC-SHA256, authenticated). A database dump alone tells nothing; changing SECRET_KEY makes
the values unreadable unless the old key stays in SECRET_KEY_FALLBACKS.
"""

import base64
import hashlib
import json
from collections.abc import Mapping

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from controlplane.errors import Refused

_PURPOSE = b"muster.job.secrets"


def seal(values: Mapping[str, str]) -> str:
    """Empty for no values."""
    return _fernet().encrypt(json.dumps(dict(values)).encode()).decode() if values else ""


def unseal(text: str) -> dict[str, str]:
    """Raises Refused when the key that sealed them is gone."""
    if not text:
        return {}
    try:
        found: dict[str, str] = json.loads(_fernet().decrypt(text.encode()))
    except InvalidToken as error:
        raise Refused(
            "the job's secrets can not be read: MUSTER_SECRET_KEY was changed since it was submitted; submit it again"
        ) from error
    return found


def _fernet() -> MultiFernet:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([Fernet(_key(key)) for key in keys])


def _key(secret: str) -> bytes:
    # Not a password: SECRET_KEY is random, so one keyed hash separates this use of it from the others.
    return base64.urlsafe_b64encode(hashlib.blake2b(secret.encode(), key=_PURPOSE, digest_size=32).digest())
