"""The image, built once for these tests from a copy of the checkout in which secrets lie about."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rig import containers, helm, lending, programs
from rig import image as pods_image
from rig.containers import Engine
from rig.node import why_not
from tests.cluster.conftest import need_rig
from tests.support.machine import need
from tests.system.image.installed import ACCOUNT, Installed, bring, offer_volumes

ROOT = Path(__file__).resolve().parents[3]
TAG, REVISION = "localhost/muster:0.1.0", "0123456789abcdef0123456789abcdef01234567"
MARK = "never-in-an-image-7f3a"  # what no layer may hold


class Noted:
    """Sizes and times for docs/figures.md; no test decides by them."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}

    @contextmanager
    def seconds(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.figures[what] = round(time.monotonic() - began, 1)


@pytest.fixture(scope="session")
def noted() -> Iterator[Noted]:
    found = Noted()
    yield found
    folder = Path(os.environ.get("MUSTER_ARTIFACTS", ROOT / "artifacts"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "install.json"
    before = json.loads(file.read_text()) if file.exists() else {}  # of other tests than those that ran now
    file.write_text(json.dumps(before | found.figures, indent=1) + "\n")


@pytest.fixture(scope="session")
def engine() -> Engine:
    return Engine()


@pytest.fixture(scope="session")
def context() -> Iterator[Path]:
    """What a person has who builds: the checkout, an installation's data, and a file with their secrets."""
    with tempfile.TemporaryDirectory(prefix="muster-context-") as place:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (Path(place) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, Path(place) / name)
        (Path(place) / ".env").write_text(f"MUSTER_SECRET_KEY={MARK}\n")
        (Path(place) / "jobs/.env").write_text(MARK)
        (Path(place) / "controlplane/lab.kubeconfig").write_text(MARK)
        (Path(place) / ".muster").mkdir()
        (Path(place) / ".muster/secret").write_text(MARK)
        yield Path(place)


@pytest.fixture(scope="session")
def image(engine, context) -> str:
    """Its id: the README's lines build an image of the same name, without a revision."""
    return str(engine.inspect(engine.build(context, tag=TAG, args={"REVISION": REVISION}))["Id"])


@pytest.fixture(scope="session")
def installed(engine) -> Iterator[Installed]:
    need_rig()
    need(not why_not(), why_not())
    for sources in (helm.SOURCES, programs.PROXY_SOURCES, programs.KUBECTL_SOURCES):
        need(not programs.why_not(sources), programs.why_not(sources))
    with (
        lending.raised(has_services=True, audits=[ACCOUNT]) as (plane, node),
        plane.client() as admin,
        containers.registry(node.folder, host=node.cable.host) as registry,
    ):
        node.trust_registry(registry)
        offer_volumes(admin, node)
        bring(engine, node)
        engine.run("podman", "load", "-i", str(pods_image.archive()))
        try:
            yield Installed(engine, plane, node, admin, registry)
        finally:
            named = engine.run("podman", "images", "--format={{.Repository}}:{{.Tag}}").stdout.split()
            engine.run("podman", "rmi", "--force", *[name for name in named if name.startswith(f"{registry}/")])
