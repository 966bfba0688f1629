"""For training scripts and for people: `muster.report(step=1, loss=0.4)`, `muster.checkpoints()`, `muster.Client`.

The first two need nothing but Python 3.8; Muster's agent provides them. The clients need `pip install muster-client`.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

from ._report import checkpoints, report, start_from

if TYPE_CHECKING:
    from .client import AsyncClient, Client

# The agent's copy contains only this file and _report; an installed client is found after it.
__path__ = pkgutil.extend_path(__path__, __name__)

__all__ = ["AsyncClient", "Client", "checkpoints", "report", "start_from"]

_CLIENTS = ("AsyncClient", "Client")


def __getattr__(name: str) -> Any:
    """Import clients on first use: a rank that only reports should not pay for an HTTP library."""
    if name not in _CLIENTS:
        raise AttributeError(f"module 'muster' has no attribute {name!r}")
    import importlib

    try:
        return getattr(importlib.import_module("muster.client"), name)
    except ImportError as error:
        raise ImportError(f"muster.{name} needs the client: pip install muster-client ({error})") from error
