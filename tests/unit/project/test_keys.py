"""A change of a file makes exactly those lanes run that may depend on it."""

import pytest

from tests.support import keys, lanes, stamps

ALL = set(lanes.LANES)
SERVER = ALL
PROCESS, SYSTEM = ({one for one in ALL if one.startswith(f"{level}/")} for level in ("process", "system"))
# One file of every room and of every kind of data, with the lanes that must run if it changes.
CHANGED = {
    "accounts/permissions.py": SERVER,
    "accounts/api_urls.py": SERVER,  # loaded by name
    "common/files/object_storage.py": SERVER,  # loaded by name
    "common/db/leadership.py": SERVER,
    "controlplane/settings.py": SERVER,
    "controlplane/edge/limits.py": SERVER,  # middleware, loaded by name
    "jobs/frameworks/torchrun.py": SERVER,  # loaded by name
    "jobs/clusters/kubernetes/facts/pods.py": SERVER,
    "jobs/migrations/0001_initial.py": SERVER,
    "jobs/templatetags/muster.py": SERVER,
    "queues/admission/decide.py": SERVER,
    "workspaces/garbage.py": SERVER,
    "credentials/services.py": SERVER,
    "volumes/services.py": SERVER,
    "agent/ranks/shim.py": ALL - {"simulation"},
    "agent/frameworks/ray.py": ALL - {"simulation"},
    "client/muster/commands/submit.py": ALL - {"simulation"},
    "client/muster/_report.py": ALL - {"simulation"},
    "embedded/demo.py": {"unit", "contract", "cluster"} | PROCESS | SYSTEM,
    "embedded/servers.py": ALL,  # pytest's plugin starts them
    "rig/node.py": {"unit", "cluster"} | SYSTEM,
    "bench/ingest.py": {"unit"} | SYSTEM,
    "bench/rig.py": {"unit", "cluster"} | SYSTEM,
    "tests/conftest.py": ALL,
    "tests/support/builders.py": ALL,
    "tests/simulation/world.py": {"unit", "simulation"},
    "tests/db/web/test_list.py": {"unit", "db"},
    "tests/contract/test_clusters.py": {"unit", "contract", "cluster"},  # by import
    "tests/browser/conftest.py": {"unit", "browser"},
    "tests/process/agent/test_ray.py": {"unit", "process/agent"},
    "tests/process/server/conftest.py": {"unit", "process/server", "cluster"},  # by import
    "tests/system/faults/conftest.py": {"unit", "system/faults"},
    "templates/jobs/_verdict.html": ALL,
    "static/live.js": ALL,
    "helm/muster/values.yaml": ALL,
    "docs/cli.md": ALL,
    "examples/ddp_digits.py": ALL,
    "requirements/dev.lock": ALL,
    "pyproject.toml": ALL,
    "docker-compose.yml": ALL,
    "bin/test": ALL,
    "manage.py": ALL,
    "tests/unit/clusters/kubernetes/golden/ray.yaml": ALL,
    "tests/contract/client_before.zip": ALL,
}


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    return {lane: keys.key(lane) for lane in ALL}


@pytest.mark.parametrize(("path", "expected"), CHANGED.items())
def test_a_changed_file_runs_the_lanes_that_depend_on_it(before, path, expected):
    assert path in keys.tracked()
    depends = {lane for lane in ALL if path in keys.files(lane)}
    assert depends == expected


@pytest.mark.parametrize("lane", ["simulation", "system/stack"])
def test_another_content_of_one_file_is_another_key(before, lane):
    def changed(path: str) -> bytes:
        content = (keys.ROOT / path).read_bytes()
        return content + b"\n" if path == "queues/admission/decide.py" else content

    assert keys.key(lane) == before[lane]
    assert keys.key(lane, read=changed) != before[lane]


def test_every_room_and_every_kind_of_file_is_named_here():
    def kind(path: str) -> str:
        first, _, rest = path.partition("/")
        return first if rest else path.rpartition(".")[2]

    rooms = {kind(path) for path in keys.tracked()} - {kind(path) for path in CHANGED}
    assert rooms <= {
        # folders and files that are no modules: each is in every lane's key, as the ones above show
        ".ci", ".dockerignore", ".editorconfig", ".gitignore", "dockerignore", "editorconfig", "gitignore", "yaml", "md", "Dockerfile", "LICENSE", "deploy",
    }, rooms  # fmt: skip
    every = set.intersection(*(set(keys.files(lane)) for lane in ALL))
    assert {path for path in keys.tracked() if not path.endswith(".py")} <= every


def test_other_packages_are_another_key(before, monkeypatch):
    monkeypatch.setattr(keys, "machine", lambda: "Python 4")
    assert all(keys.key(lane) != before[lane] for lane in ALL)


class TestStamps:
    @pytest.fixture(autouse=True)
    def own_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def test_a_larger_run_includes_a_smaller_one(self):
        stamps.write("db", size="ci", key="k", words="3 passed")
        assert str(stamps.find("db", size="quick", key="k")).endswith("size ci: 3 passed")
        assert stamps.find("db", size="ci", key="k")
        assert stamps.find("db", size="all", key="k") is None
        assert stamps.find("db", size="ci", key="another") is None
        assert stamps.find("process", size="ci", key="k") is None

    def test_what_ci_took_from_a_stamp_is_run_by_the_next_full_run_in_any_case(self):
        for lane in ("db", "system/stack"):
            stamps.write(lane, size="all", key="k", words="9 passed")
            stamps.owe(lane)
            assert stamps.find(lane, size="ci", key="k")
            assert stamps.find(lane, size="all", key="k") is None
            stamps.write(lane, size="all", key="k", words="9 passed")
            assert stamps.find(lane, size="all", key="k")

    def test_a_file_that_cannot_be_read_is_no_stamp(self):
        stamps.write("db", size="ci", key="k", words="3 passed")
        next(stamps.folder().glob("*.json")).write_text("{")
        assert stamps.find("db", size="ci", key="k") is None

    def test_commits_of_full_runs_are_known(self):
        stamps.write("db", size="ci", key="k", words="3 passed")
        assert stamps.passed_in_full() == []
        stamps.write("db", size="all", key="k", words="9 passed")
        assert stamps.passed_in_full() == [keys.head()]
