"""Definitions of the custom resources that our chart renders, from the Go modules of the projects that define them."""

import json
import os
import shutil
import tempfile
from pathlib import Path

from . import programs

# Module, version, and the files in it.
SOURCES = (
    (
        "sigs.k8s.io/gateway-api",
        "v1.4.0",
        ("config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",),
    ),
    (
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        tuple(
            f"example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml"
            for plural in ("servicemonitors", "prometheusrules")
        ),
    ),
)


def folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    versions = "-".join(version for _, version, _ in SOURCES)
    return cache / "muster" / f"definitions-{versions}"


def why_not() -> str:
    """Return what to install; empty where the files are there or can be fetched."""
    return "" if folder().exists() else programs.problem_of_go()


def fetch() -> list[Path]:
    """Return the files, fetched once. Raises programs.CanNotBuild."""
    there = folder()
    if not there.exists():
        there.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=there.parent, prefix="definitions-") as place:
            draft = Path(place) / "all"
            draft.mkdir()
            for module, version, names in SOURCES:
                _fetch(module, version, names, into=draft)
            if not there.exists():
                draft.rename(there)
    return sorted(there.glob("*.yaml"))


def _fetch(module: str, version: str, names: tuple[str, ...], *, into: Path) -> None:
    (into.parent / "go.mod").write_text("module rig\n")
    found = json.loads(programs.go(into.parent, "mod", "download", "-json", f"{module}@{version}"))
    for name in names:
        shutil.copy(Path(found["Dir"]) / name, into / Path(name).name)
