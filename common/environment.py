"""Settings that are secret, from the environment or from a file that it names: that is how vaults and Kubernetes hand them over.

`MUSTER_SECRET_KEY_FILE=/run/secrets/key` stands for `MUSTER_SECRET_KEY`. Knows no Django: bin/demo's supervisor reads it too.
"""

import os
from collections.abc import Mapping
from pathlib import Path

SECRETS = ("MUSTER_SECRET_KEY", "MUSTER_OLD_SECRET_KEYS", "DATABASE_URL", "REDIS_URL", "MUSTER_CLUSTERS")


class BadSetting(ValueError):
    """Names the setting and the way out, and never the value."""


def secret(name: str, default: str = "", *, environ: Mapping[str, str] = os.environ) -> str:
    path = environ.get(f"{name}_FILE", "")
    if not path:
        return environ.get(name, default)
    if environ.get(name):
        raise BadSetting(f"{name} and {name}_FILE are both set; leave one of them out")
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadSetting(f"{name}_FILE names {path}, which cannot be read: {reason}") from None
    if not text:
        raise BadSetting(f"{name}_FILE names {path}, which is empty")
    return text


def unfolded(environ: Mapping[str, str]) -> dict[str, str]:
    """The same with each file's content in its setting, for processes that are started with them."""
    files = {f"{name}_FILE" for name in SECRETS}
    found = {name: secret(name, environ=environ) for name in SECRETS if environ.get(f"{name}_FILE")}
    return {name: value for name, value in environ.items() if name not in files} | found
