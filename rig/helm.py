"""Helm, built from its Go module like the rig's other programs."""

import os
import subprocess
from functools import lru_cache
from pathlib import Path

from . import programs

SOURCES = (programs.GoModule("helm.sh/helm/v4", "v4.3.1", {"helm": "helm.sh/helm/v4/cmd/helm"}),)
CHART = Path(__file__).resolve().parents[1] / "helm/muster"
EXAMPLES = CHART.with_name("examples")


class HelmError(Exception):
    """What helm printed when it refused."""


@lru_cache(1)
def program() -> Path:
    """Build helm, once for this version; some minutes the first time. Raises programs.CanNotBuild."""
    return programs.build(SOURCES) / "helm"


def helm(*words: str, kubeconfig: Path | None = None, seconds: float = 600) -> str:
    """Run helm and return what it printed; raises HelmError. Without `kubeconfig` no cluster can be reached."""
    env = {**os.environ, "KUBECONFIG": str(kubeconfig or os.devnull), "HELM_DEBUG": "0"}
    done = subprocess.run(
        [str(program()), *words], env=env, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        raise HelmError((done.stderr + done.stdout).strip())
    return done.stdout
