"""An installation of the release before, whose account is in the namespace where pods of jobs run."""

from pathlib import Path

import httpx
import yaml

from rig.elsewhere import Elsewhere
from rig.plane import ControlPlane
from rig.world import NAMESPACE, apply, await_right, issue_token

FILE = Path(__file__).with_name("account_before.yaml")


def username(namespace: str) -> str:
    return f"system:serviceaccount:{namespace}:muster"


def install(plane: ControlPlane | Elsewhere, admin: httpx.Client, namespace: str) -> Path:
    """Apply the file of before; return its account's kubeconfig."""
    for thing in yaml.safe_load_all(FILE.read_text().replace(NAMESPACE, namespace)):
        apply(admin, thing)
    await_right(admin, username(namespace), namespace=namespace, resource="pods", verb="create")
    return plane.write_kubeconfig(f"before-{namespace}", user={"token": issue_token(admin, namespace)})
