"""A cluster that is already running: the rig of another terminal, or a real one with an administrator's kubeconfig."""

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import httpx
import yaml

from .processes import Process


class Elsewhere:
    """What tests need of a control plane, for one they did not start. None of its processes are ours."""

    def __init__(self, kubeconfig: str, folder: Path):
        self.folder = folder
        self.kubeconfig = Path(kubeconfig).expanduser()
        config = yaml.safe_load(self.kubeconfig.read_text())
        chosen = _named(config["contexts"], config["current-context"])["context"]
        self._cluster = _named(config["clusters"], chosen["cluster"])["cluster"]
        self._user = _named(config["users"], chosen["user"])["user"]
        self.url = str(self._cluster["server"]).rstrip("/")
        self.authority_file = self._file(self._cluster, "certificate-authority")
        self.processes: dict[str, Process] = {}

    def client(self) -> httpx.Client:
        """Return a client for the administrator, which the caller closes."""
        context = self.tls()
        headers = {}
        if "token" in self._user:
            headers["Authorization"] = f"Bearer {self._user['token']}"
        else:
            context.load_cert_chain(self._file(self._user, "client-certificate"), self._file(self._user, "client-key"))
        return httpx.Client(base_url=self.url, verify=context, headers=headers, timeout=30)

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority_file))

    def is_ready(self) -> bool:
        with self.client() as client:
            return client.get("/readyz").status_code == 200

    def write_kubeconfig(self, name: str, *, user: dict[str, str]) -> Path:
        return write_kubeconfig(self.folder, name, url=self.url, authority=self.authority_file, user=user)

    def _file(self, where: dict[str, Any], name: str) -> Path:
        """Return the named file, or write its content from the kubeconfig itself."""
        if name in where:
            return Path(where[name])
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(where[f"{name}-data"]))
        return path


def write_kubeconfig(folder: Path, name: str, *, url: str, authority: Path, user: dict[str, str]) -> Path:
    path = folder / f"{name}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "rig", "cluster": {"server": url, "certificate-authority": str(authority)}}],
                "users": [{"name": name, "user": user}],
                "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": name}}],
                "current-context": "rig",
            }
        )
    )
    return path


def _named(things: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in things if one["name"] == name)
