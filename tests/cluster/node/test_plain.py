"""A plain job on real pods: two roles with shapes of their own find each other by DNS, and the workers end the job."""

import pytest

from tests.cluster.node.conftest import GUARDS
from tests.support.meeting import MEETS
from tests.support.patience import until


@pytest.mark.ci(guards=GUARDS)
def test_workers_and_a_helper_meet_on_real_pods_and_the_workers_end_the_job(pods):
    job = pods.submit(
        MEETS, command=["python3", "train.py", "1"], framework="plain", nodes=2,
        fields={"helper_command": ["python3", "train.py", "1"], "helper_cpu": "50m", "helper_memory": "96Mi"},
    )  # fmt: skip
    (helper,) = until(lambda: [one for one in pods.of(job) if "helper-0" in one["metadata"]["name"]])
    requests = helper["spec"]["containers"][0]["resources"]["requests"]
    assert (requests["cpu"], requests["memory"]) == ("50m", "96Mi")
    ended = pods.until_phase(job, "succeeded", "failed")
    assert ended.phase == "succeeded", (ended.message, pods.text(job))
    assert "met helper-0 worker-1" in pods.text(job)
    assert [line.text for line in pods.client.logs(job.id, rank=2)] == ["helper-0 is rank None of 2", "serving"]
    assert pods.of(job) == []
