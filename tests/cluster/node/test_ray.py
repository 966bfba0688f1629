"""A Ray job on real pods: head and workers with shapes of their own, tasks on the workers, and nothing left at the end."""

import pytest

from tests.cluster.node.conftest import GUARDS
from tests.support.patience import until
from tests.system.stack.test_ray import DRIVER, FOUR


@pytest.mark.ci(guards=GUARDS)
def test_head_and_workers_meet_on_real_pods_and_the_driver_ends_the_job(pods):
    job = pods.submit(
        DRIVER,
        command=["python3", "train.py"],
        framework="ray",
        nodes=2,
        fields={"head_cpu": "900m", "head_memory": "900Mi"},
    )
    (head,) = until(lambda: [one for one in pods.of(job) if "head-0" in one["metadata"]["name"]])
    requests = head["spec"]["containers"][0]["resources"]["requests"]
    assert (requests["cpu"], requests["memory"]) == ("900m", "900Mi")
    ended = pods.until_phase(job, "succeeded", "failed")
    text = pods.text(job)
    assert ended.phase == "succeeded", (ended.message, text)
    assert f"squares {FOUR}" in text and "nodes 3" in text
    assert {line.rpartition(" of ")[0] for line in text if line.startswith("task ")} == {f"task {n}" for n in range(4)}
    assert pods.of(job) == []
