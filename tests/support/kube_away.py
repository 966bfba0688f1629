"""A Kubernetes cluster whose API server is away."""

import json
from pathlib import Path

from embedded.ports import free_port


def options(folder: Path) -> dict[str, str]:
    """OPTIONS of such a cluster; its kubeconfig is written into the folder."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{free_port()}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return {"KUBECONFIG": str(path), "NAMESPACE": "x", "IMAGE": "x", "CONTROL_URL": "http://x"}
