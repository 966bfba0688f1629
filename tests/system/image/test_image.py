"""The Dockerfile as it is: small, without root, without what only builds, and it runs on a read-only root."""

import io
import json
import re
import tarfile

import pytest

from tests.system.image.conftest import MARK, REVISION

pytestmark = pytest.mark.soak(guards=("Dockerfile", "deploy", "requirements/server.lock"))
MOST_BYTES = 450e6
SECRETS = re.compile(r"/\.env$|/\.muster/|/\.git/|/secret_key$|\.kubeconfig$")
BUILDERS = re.compile(
    r"(.*-)?(gcc|g\+\+|cc|c\+\+|cpp|c99|clang|ld|as|make|cmake)(-\d[\w.]*)?|git|pip[\d.]*|node|npm|npx"
)
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
    assert said["Healthcheck"]["Test"] == ["CMD", "python", "-m", "controlplane.operations.alive"]


def test_it_holds_the_product_and_nothing_that_only_builds_or_tests_it(listed):
    for name in ("agent/agent.pyz", "staticfiles/staticfiles.json", "templates/base.html", "manage.py", "LICENSE"):
        assert f"/muster/{name}" in listed
    assert "/muster/jobs/sql/write_batch.sql" in listed
    assert any(name.startswith("/muster/staticfiles/npm/uplot.") for name in listed)
    folders = {name.split("/")[2] for name in listed if name.startswith("/muster/") and name.count("/") > 2}
    assert folders.isdisjoint({"tests", "bench", "rig", "embedded", "docs", "examples", ".git"})
    programs = {name.rsplit("/", 1)[1] for name in listed if "/bin/" in name and not name.startswith("/opt/muster/lib")}
    assert not [name for name in programs if BUILDERS.fullmatch(name)]
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


def test_its_user_has_a_name(engine, image):
    """Without one Celery warns at each start that it runs with the rights of root."""
    asks = "import grp, os, pwd; print(pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name)"
    done = engine.run("podman", "run", *LOCKED, "--entrypoint=python", image, "-c", asks)
    assert done.stdout.split() == ["muster", "muster"]


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


def test_no_layer_and_no_setting_holds_a_secret(engine, image, tmp_path):
    """Each layer by itself: what a later one deletes is still in an earlier one."""
    said = json.dumps(engine.inspect(image))
    history = engine.run("podman", "history", "--no-trunc", image).stdout
    assert MARK not in said + history
    assert "SECRET_KEY=" not in json.dumps(engine.inspect(image)["Config"]["Env"])
    archive = tmp_path / "image.tar"
    engine.run("podman", "save", "--format=docker-archive", "-o", str(archive), image)
    layers, files = 0, 0
    with tarfile.open(archive) as saved:
        for one in saved:
            if not one.isfile() or not one.name.endswith(".tar"):
                continue
            layers += 1
            with tarfile.open(fileobj=io.BytesIO(saved.extractfile(one).read())) as layer:
                for file in layer:
                    files += 1
                    assert not SECRETS.search(f"/{file.name}"), file.name
                    assert not file.isfile() or MARK.encode() not in layer.extractfile(file).read(), file.name
    archive.unlink()
    assert layers > 3 and files > 10_000


def test_its_health_check_fails_where_nothing_answers(engine, image):
    check = engine.inspect(image)["Healthcheck"]["Test"][1:]
    done = engine.run("podman", "run", *LOCKED, f"--entrypoint={check[0]}", image, *check[1:], check=False)
    assert done.returncode == 1 and "the web process does not answer" in done.stderr


def test_local_jobs_are_off(engine, image):
    """They would be processes beside the control plane, which have its secrets."""
    assert "MUSTER_LOCAL_JOBS=0" in engine.inspect(image)["Config"]["Env"]
