"""URLs and signing secrets of webhooks, encrypted at rest; only a delivery decrypts them.

See common/encryption.py for the effect of a new key.
"""

import secrets
from datetime import datetime

from common.encryption import InvalidToken, fernet
from common.errors import Refused
from jobs.models import Webhook

from .signing import secret_of

KEY_BYTES = 32
_URL, _SECRET = b"muster.webhook.url", b"muster.webhook.key"


def new_secret() -> str:
    return secret_of(secrets.token_bytes(KEY_BYTES))


def seal_url(url: str) -> str:
    return fernet(_URL).encrypt(url.encode()).decode()


def seal_secret(secret: str) -> str:
    return fernet(_SECRET).encrypt(secret.encode()).decode()


def url_of(webhook: Webhook) -> str:
    """Return the URL. Raises Refused when the encryption key has changed since."""
    return _unsealed(_URL, webhook.sealed_url, "enter its URL again")


def secrets_of(webhook: Webhook, *, now: datetime) -> list[str]:
    """Return the secrets that sign now, the newest first. Raises Refused when the encryption key has changed since."""
    sealed = [webhook.sealed_secret]
    if webhook.sealed_old_secret and webhook.old_secret_until and now < webhook.old_secret_until:
        sealed.append(webhook.sealed_old_secret)
    return [_unsealed(_SECRET, one, "rotate its secret") for one in sealed]


def _unsealed(purpose: bytes, text: str, remedy: str) -> str:
    try:
        return fernet(purpose).decrypt(text.encode()).decode()
    except InvalidToken as error:
        raise Refused(f"MUSTER_SECRET_KEY was changed since this webhook was saved; {remedy}") from error
