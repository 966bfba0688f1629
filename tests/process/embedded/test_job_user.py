"""A job of a whole installation runs as a user of its own, which can read none of its secrets."""

import os

import pytest
from muster import Client

from tests.support.machine import need
from tests.support.patience import until

pytestmark = pytest.mark.ci

SPY = """
import os, glob, subprocess
mine = os.environ["MUSTER_SHARED"]
print("uid", os.getuid(), flush=True)
found = []
for path in PATHS:
    try:
        found.append(open(path).read()[:20])
    except OSError as error:
        print(type(error).__name__, path, flush=True)
print("found", found, flush=True)
import celery
print("our packages can be imported", flush=True)
"""


def test_a_job_cannot_read_the_secrets_of_its_installation(muster, tmp_path):
    need(os.geteuid() == 0, "only root starts jobs as another user")
    names = ["secrets.json", "cli.json", "instance.json", "logs/web.log", "local/control.json"]
    paths = [str(muster.folder / name) for name in names] + [f"/proc/{muster.pids['tasks']}/environ"]
    (tmp_path / "spy.py").write_text(f"PATHS = {paths}\n{SPY}")
    with Client(muster.url, muster.token) as client:
        job = client.submit("python spy.py", queue="default", directory=tmp_path, nodes=1, framework="plain").id
        until(lambda: client.job(job).is_finished)
        lines = [line.text for line in client.logs(job)]
        assert client.job(job).phase == "succeeded", lines
    uid = muster.env["MUSTER_JOB_USER"]
    assert f"uid {uid}" in lines and "found []" in lines and "our packages can be imported" in lines
    assert [line for line in lines if line.startswith("PermissionError")] == [
        f"PermissionError {path}" for path in paths
    ]
