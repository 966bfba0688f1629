"""The connection to Postgres is cut in the middle of a commit: the COMMIT never arrives, or its answer is lost."""

import tempfile
import time
from pathlib import Path

import pytest

from embedded.servers import Servers
from tests.support.patience import until
from tests.system.faults.checks import check
from tests.system.faults.installation import RunningInstallation
from tests.system.faults.proxy import Proxy

# Text within the transaction whose commit is cut.
TRANSACTIONS = {
    "submit": 'INSERT INTO "jobs_job"',
    "admit": "quota reserved",
    "take": '"lease_owner" = ',
    "step": "INSERT INTO jobs_replica",
    "applied": 'UPDATE "jobs_job" SET "applied_at"',
    "batch": "INSERT INTO jobs_logsegment",
}
ALONE = ("batch",)  # one statement without a BEGIN
SAMPLE = ("step",)
CELLS = [
    pytest.param(
        name,
        when,
        marks=()
        if name in SAMPLE and when == "after"
        else pytest.mark.soak(guards=("jobs/control", "jobs/ingest", "common/db")),
    )
    for name in TRANSACTIONS
    for when in ("before", "after")
]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory):
    """An installation that reaches its Postgres through the proxy."""
    folder = tmp_path_factory.mktemp("proxied")
    with (
        tempfile.TemporaryDirectory(prefix="muster-cut-") as sockets,
        Servers(folder / "servers", is_temporary=True) as servers,
    ):
        url, _, place = servers.database_url.partition("?host=")
        proxy = Proxy(Path(sockets), Path(place.partition("&")[0]))
        env = {"DATABASE_URL": f"{url}?host={sockets}&port=5432", "REDIS_URL": servers.redis_url}
        installation = RunningInstallation(folder / "data", environ=env)
        try:
            installation.start()
            installation.furnish()
            yield installation, proxy
        finally:
            installation.stop()
            proxy.close()


def count(installation: RunningInstallation) -> int:
    return len(installation.api.ask("GET", "/jobs", params={"limit": 200})["results"])


@pytest.mark.parametrize("name, when", CELLS)
def test_the_connection_is_cut_in_the_middle_of_a_commit(proxied, matrix, name, when):
    installation, proxy = proxied
    before = count(installation)
    cut = proxy.cut(when, of=TRANSACTIONS[name], is_alone=name in ALONE)
    job = installation.submit("--lines", "10")
    until(lambda: cut.is_done, says=f"{name} cut")
    since = time.time()
    until(lambda: installation.api.job(job)["is_finished"])
    matrix.add_all("commit cut", {f"{name}, {when}": time.time() - since})
    check(installation, job, attempts=1)
    assert count(installation) == before + 1
