"""Read secret settings from the environment or from files it names, which is how vaults and Kubernetes supply them.

`MUSTER_SECRET_KEY_FILE=/run/secrets/key` stands for `MUSTER_SECRET_KEY`. Imports no Django: bin/demo's supervisor uses
it too.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path

SECRETS = (
    "MUSTER_SECRET_KEY", "MUSTER_OLD_SECRET_KEYS", "DATABASE_URL", "REDIS_URL", "MUSTER_CLUSTERS", "MUSTER_FILES",
    "MUSTER_OLD_FILES", "OTEL_EXPORTER_OTLP_HEADERS",
)  # fmt: skip
# Earlier keys exist only where the key was replaced, so their file may be absent or empty: that means none.
MAY_BE_ABSENT = frozenset({"MUSTER_OLD_SECRET_KEYS"})

ON, OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


class BadSetting(ValueError):
    """A bad setting; the message names the setting and how to fix it, never the value."""


def secret(name: str, default: str = "", *, environ: Mapping[str, str] = os.environ) -> str:
    path = environ.get(f"{name}_FILE", "")
    if not path:
        return environ.get(name, default)
    if environ.get(name):
        raise BadSetting(f"{name} and {name}_FILE are both set; unset one of them")
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError) and name in MAY_BE_ABSENT:
            return default
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadSetting(f"{name}_FILE names {path}, which cannot be read: {reason}") from None
    if not text and name not in MAY_BE_ABSENT:
        raise BadSetting(f"{name}_FILE names {path}, which is empty")
    return text or default


def flag(name: str, default: bool = False, *, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether something is on. Raises BadSetting for a word that is neither on nor off."""
    text = environ.get(name, "").strip()
    if text.lower() in ON:
        return True
    if text.lower() in OFF:
        return False
    if text:
        raise BadSetting(f"{name} is {text[:40]!r}; it must be 1, true, yes or on, or else 0, false, no or off")
    return default


def number(name: str, default: float, *, least: float = 0, environ: Mapping[str, str] = os.environ) -> float:
    """Return a number; a whole one is an int. Raises BadSetting for anything else, and below `least`."""
    text = environ.get(name, "").strip()
    if not text:
        return default
    try:
        found = float(text) if isinstance(default, float) else int(text)
    except ValueError:
        kind = "a number" if isinstance(default, float) else "a whole number"
        raise BadSetting(f"{name} is {text[:40]!r}; it must be {kind}, such as {default:g}") from None
    if not least <= found < math.inf:
        raise BadSetting(f"{name} is {text[:40]}; it must be at least {least:g}")
    return found


def unfolded(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ`, for child processes, with the files' content in place of the *_FILE variables."""
    files = {f"{name}_FILE" for name in SECRETS}
    found = {name: secret(name, environ=environ) for name in SECRETS if environ.get(f"{name}_FILE")}
    return {name: value for name, value in environ.items() if name not in files} | found
