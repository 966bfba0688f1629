"""Encrypt values at rest with keys derived from SECRET_KEY, one for each purpose.

Fernet (AES-128-CBC with HMAC-SHA256, authenticated). A database dump alone reveals nothing; changing SECRET_KEY makes
the values unreadable unless the old key stays in SECRET_KEY_FALLBACKS.
"""

import base64
import hashlib

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

__all__ = ["InvalidToken", "fernet"]


def fernet(purpose: bytes) -> MultiFernet:
    """Return the cipher for one purpose; a value encrypted for another purpose cannot be decrypted with it."""
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([Fernet(_key(key, purpose)) for key in keys])


def _key(secret: str, purpose: bytes) -> bytes:
    # Not a password: SECRET_KEY is random, so one keyed hash is enough to separate this use from the others.
    return base64.urlsafe_b64encode(hashlib.blake2b(secret.encode(), key=purpose, digest_size=32).digest())
