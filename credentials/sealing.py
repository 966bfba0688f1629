"""Encrypt a secret's values at rest. See common/encryption.py for the effect of a new key."""

import json
from collections.abc import Mapping

from common.encryption import InvalidToken, fernet
from common.errors import Refused

_PURPOSE = b"muster.team.secret"


def seal(values: Mapping[str, str]) -> str:
    return fernet(_PURPOSE).encrypt(json.dumps(dict(values)).encode()).decode()


def unseal(text: str, *, name: str) -> dict[str, str]:
    """Decrypt what `seal` returned. Raises Refused when the encryption key has changed since; `name` is for its words."""
    try:
        found: dict[str, str] = json.loads(fernet(_PURPOSE).decrypt(text.encode()))
    except InvalidToken as error:
        words = (
            f"secret {name} cannot be read: MUSTER_SECRET_KEY was changed since it was saved; enter its values again"
        )
        raise Refused(words) from error
    return found
