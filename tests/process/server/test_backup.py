"""backup and restore by real processes: through a pipe, cut off by a kill, and beside a process that waits."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.server.conftest import CLUSTERS, ROOT, Database, Server, in_django
from tests.support.archives import edited, of_release_before

pytestmark = pytest.mark.ci

GOES_ON = "SELECT attempt_floor - attempt, lease_owner, lease_expires_at FROM jobs_job WHERE finished_at IS NULL"
CUT_OFF = """
    import os
    from django.db import transaction
    from controlplane.operations import archive, restore
    class Cut(archive.Reader):
        def entries(self):
            yield from super().entries()
            transaction.on_commit(lambda: os.kill(os.getpid(), 9))  # as soon as others see the rows
    with open({path!r}, "rb") as source:
        list(restore.restore(Cut(source), say=print))
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A server whose database holds people, a queue, a running and a failed job."""
    database = Database()
    database.create_with_tables()
    server = Server(tmp_path_factory.mktemp("filled"), database)
    server.env["MUSTER_CLUSTERS"] = CLUSTERS
    subprocess.run([sys.executable, "-m", "tests.process.server.filling"], cwd=ROOT, env=server.env, check=True)
    yield server
    database.drop()


@pytest.fixture(scope="module")
def archive(filled, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "muster.tar"
    code, said = filled.run("backup", str(path))
    assert code == 0, said
    return path


def test_through_pipes(filled, server, database):
    database.create()
    words = [sys.executable, "-m", "controlplane.operations.server"]
    writer = subprocess.Popen([*words, "backup", "-"], cwd=ROOT, env=filled.env, stdout=subprocess.PIPE)
    reader = subprocess.run(
        [*words, "restore", "-"], cwd=ROOT, env=server.env, stdin=writer.stdout, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (writer.wait(), reader.returncode) == (0, 0), reader.stderr
    assert database.run("SELECT count(*) FROM jobs_job") == [(2,)]


def test_migrate_ends_a_restoration_that_was_cut_off(archive, server, database, tmp_path):
    database.create()
    old = edited(archive, tmp_path, of_release_before, is_whole=True)
    with pytest.raises(AssertionError):
        in_django(server, CUT_OFF.format(path=str(old)))
    assert database.run("SELECT count(*) FROM jobs_job") != [(0,)]
    code, said = server.run("migrate")
    assert code == 0 and "a restoration that was cut off is finished" in said, said
    assert database.run(GOES_ON) == [(10, "", None)]
    assert database.run("SELECT DISTINCT is_restored FROM jobs_replica WHERE closed_at IS NULL") == [(True,)]
    told = "SELECT count(*) FROM accounts_auditentry WHERE act = 'installation.restore'"
    assert database.run(told) == [(1,)]
    assert "cut off" not in server.run("migrate")[1]


def test_processes_wait_for_the_end_of_a_restoration(server, database):
    database.create_with_tables()
    hold = """
        from django.db import transaction
        from controlplane.operations import restored_jobs
        with transaction.atomic():
            restored_jobs.hold({"at": "now", "release": "0"})
    """
    in_django(server, hold)
    with server.start("watcher") as watcher:
        watcher.until_said("a restoration of this database was cut off: run muster-server migrate")
        assert server.run("migrate")[0] == 0
        watcher.until_said("watcher: this process leads")
