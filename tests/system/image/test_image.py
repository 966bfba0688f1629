"""The Dockerfile as it is: small, without root, without what only builds, and it runs on a read-only root."""

import json
import tarfile

import pytest

from tests.system.image.conftest import MARK, REVISION

pytestmark = pytest.mark.long
MOST_BYTES = 450e6
LOCKED = ("--rm", "--network=none", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--tmpfs=/tmp")


@pytest.fixture(scope="module")
def listed(engine, image, tmp_path_factory) -> dict[str, tarfile.TarInfo]:
    """Every file of the image."""
    archive = tmp_path_factory.mktemp("image") / "root.tar"
    container = engine.run("podman", "create", image).stdout.strip()
    try:
        engine.run("podman", "export", "-o", str(archive), container)
    finally:
        engine.run("podman", "rm", container)
    assert MARK.encode() not in archive.read_bytes()
    with tarfile.open(archive) as tar:
        return {f"/{one.name}": one for one in tar}


def test_it_is_small_and_says_what_it_is(engine, image, noted):
    said = engine.inspect(image)
    noted.figures["image MB"] = round(said["Size"] / 1e6, 1)
    assert said["Size"] <= MOST_BYTES, f"{said['Size'] / 1e6:.0f} MB"
    labels = said["Labels"]
    assert labels["org.opencontainers.image.version"] == "0.1.0"
    assert labels["org.opencontainers.image.revision"] == REVISION
    assert said["User"] == "10001:10001"
    assert said["Config"]["Entrypoint"] == ["muster-server"] and said["Config"]["Cmd"] == ["web"]
    assert said["Healthcheck"]["Test"] == ["CMD", "python", "-m", "controlplane.alive"]


def test_it_holds_the_product_and_nothing_that_only_builds_or_tests_it(listed):
    for name in ("agent/agent.pyz", "staticfiles/staticfiles.json", "templates/base.html", "manage.py", "LICENSE"):
        assert f"/muster/{name}" in listed
    assert any(name.startswith("/muster/staticfiles/npm/uplot.") for name in listed)
    folders = {name.split("/")[2] for name in listed if name.startswith("/muster/") and name.count("/") > 2}
    assert folders.isdisjoint({"tests", "bench", "rig", "embedded", "docs", "examples", ".git"})
    programs = {name.rsplit("/", 1)[1] for name in listed if "/bin/" in name and not name.startswith("/opt/muster/lib")}
    assert programs.isdisjoint({"gcc", "cc", "make", "ld", "git", "pip", "node", "npm"})
    assert not any("/.cache" in name or name.endswith("/pip/__init__.py") for name in listed if "/opt/" in name)
    assert not [name for name in listed if name.split("/")[1] == "root" and "cache" in name]


def test_the_user_may_write_to_its_data_only(listed):
    own = {name for name, one in listed.items() if one.uid == 10001}
    assert own == {"/data"}
    assert not [
        name
        for name, one in listed.items()
        if name.startswith(("/muster", "/opt")) and one.isfile() and one.mode & 0o022
    ]


def test_it_starts_with_a_read_only_root_and_without_any_right(engine, image):
    done = engine.run("podman", "run", *LOCKED, image, "--help")
    assert "watcher" in done.stdout
    refused = engine.run("podman", "run", *LOCKED, image, "web", check=False)
    assert refused.returncode == 1
    assert refused.stderr.strip().splitlines()[-1].startswith("Error: MUSTER_SECRET_KEY is not set")


def test_any_other_user_can_run_it(engine, image):
    """OpenShift gives each namespace a user of its own."""
    done = engine.run("podman", "run", *LOCKED, "--user=1000650000:0", image, "--help")
    assert "watcher" in done.stdout


def test_no_layer_and_no_setting_holds_a_secret(engine, image):
    said = json.dumps(engine.inspect(image))
    history = engine.run("podman", "history", "--no-trunc", image).stdout
    assert MARK not in said + history
    assert "SECRET_KEY=" not in json.dumps(engine.inspect(image)["Config"]["Env"])
