"""Encrypt a job's secrets at rest; only a launch decrypts them.

See common/encryption.py for the effect of a new key.
"""

import json
from collections.abc import Mapping

from common.encryption import InvalidToken, fernet
from common.errors import Refused

_PURPOSE = b"muster.job.secrets"


def seal(values: Mapping[str, str]) -> str:
    """Encrypt `values`; returns "" for no values."""
    return fernet(_PURPOSE).encrypt(json.dumps(dict(values)).encode()).decode() if values else ""


def unseal(text: str) -> dict[str, str]:
    """Decrypt what `seal` returned. Raises Refused when the encryption key has changed since."""
    if not text:
        return {}
    try:
        found: dict[str, str] = json.loads(fernet(_PURPOSE).decrypt(text.encode()))
    except InvalidToken as error:
        raise Refused(
            "the job's secrets cannot be read: MUSTER_SECRET_KEY was changed since it was submitted; submit it again"
        ) from error
    return found
