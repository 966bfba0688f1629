"""Where API servers are, read without connecting to one: what nobody may make the server call for them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def urls(options: Mapping[str, Any]) -> list[str]:
    """Return the addresses of API servers that a cluster's OPTIONS lead to; none from a file that cannot be read.

    A kubeconfig may name several; without one it is the API server of the cluster that this process runs in.
    """
    if path := options.get("KUBECONFIG"):
        return _of_kubeconfig(Path(str(path)))
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return [f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"] if host else []


def _of_kubeconfig(path: Path) -> list[str]:
    try:
        entries = (yaml.safe_load(path.read_text()) or {}).get("clusters") or []
        return [str(entry["cluster"]["server"]) for entry in entries]
    except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError):
        return []  # the adapter itself says what is wrong with it
