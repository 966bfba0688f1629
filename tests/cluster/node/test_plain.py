"""A plain job on real pods: two roles with shapes of their own find each other by DNS, and the workers end the job.

Its pods have the team's secrets: variables, files and a registry login.
"""

import pytest

from tests.cluster.node.conftest import GUARDS
from tests.support.meeting import MEETS
from tests.support.patience import until

READS = """
import os
print("has", os.environ["HF_TOKEN"], open(os.environ["MUSTER_SECRET_GCP"] + "/key.json").read(), flush=True)
"""


@pytest.mark.ci(guards=GUARDS)
def test_workers_and_a_helper_meet_on_real_pods_and_the_workers_end_the_job(pods):
    secret = pods.client.create_team_secret
    secret("pods", "hub", values={"HF_TOKEN": "zebra"})
    secret("pods", "gcp", values={"key.json": "{}"}, kind="file")
    login = {"server": "registry.invalid", "username": "robot", "password": "p"}
    secret("pods", "registry", values=login, kind="registry")
    named = ["hub", "gcp", "registry"]
    job = pods.submit(
        READS + MEETS, command=["python3", "train.py", "1"], framework="plain", nodes=2,
        fields={"helper_command": ["python3", "train.py", "1"], "helper_cpu": "50m", "helper_memory": "96Mi", "team_secrets": named},
    )  # fmt: skip
    (helper,) = until(lambda: [one for one in pods.of(job) if "helper-0" in one["metadata"]["name"]])
    requests = helper["spec"]["containers"][0]["resources"]["requests"]
    (login,) = helper["spec"]["imagePullSecrets"]
    assert login["name"].endswith("-pull")
    assert (requests["cpu"], requests["memory"]) == ("50m", "96Mi")
    ended = pods.until_phase(job, "succeeded", "failed")
    assert ended.phase == "succeeded", (ended.message, pods.text(job))
    assert "met helper-0 worker-1" in pods.text(job)
    assert [line.text for line in pods.client.logs(job.id, rank=2)] == [
        "has zebra {}", "helper-0 is rank None of 2", "serving",
    ]  # fmt: skip
    assert pods.of(job) == []
