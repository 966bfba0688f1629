"""Pods of one job tried from the pods of another team's, on a node that enforces network policies."""

import pytest

from tests.cluster.node.conftest import GUARDS, Pods
from tests.support.patience import until

# The first replica listens where torchrun does and elsewhere; the second reaches it. Both stay until they are cancelled.
LISTENS = """
import os, socket, time
if os.environ["MUSTER_INDEX"] == "0":
    held = [socket.create_server(("", port)) for port in (29500, 8080)]
    print("listening", flush=True)
else:
    while True:
        try:
            socket.create_connection((os.environ["MASTER_ADDR"], 29500), timeout=5).close()
            break
        except OSError:
            time.sleep(0.2)
    print("reached its own job", flush=True)
time.sleep(3600)
"""
TRIES = """
import os, socket, time
socket.setdefaulttimeout(5)
# A plug-in such as this one closes a pod once it sees that the pod has an address, which the pod's first lines may precede.
while walled := os.environ.get("WALLED"):
    host, _, port = walled.rpartition(":")
    try:
        socket.create_connection((host, int(port))).close()
        time.sleep(0.2)
    except OSError:
        break
for place in os.environ["PLACES"].split():
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host, int(port))).close()
        print(place, "is open", flush=True)
    except OSError as error:
        print(place, "is closed", flush=True)
print("resolved", socket.gethostbyname("kubernetes.default.svc.cluster.local"), flush=True)
"""


def tried(pods: Pods, queue: str, places: list[str], *, walled: str = "") -> dict[str, bool]:
    """Whether a pod of this queue's team reaches each of these places, once `walled` is closed to it."""
    (pods.folder / "train.py").write_text(TRIES)
    job = pods.client.submit(
        ["python3", "train.py"], queue=queue, framework="plain", nodes=1, nproc_per_node=1, directory=pods.folder,
        env={"PLACES": " ".join(places), "WALLED": walled},
    )  # fmt: skip
    ended = pods.until_phase(job, "succeeded", "failed")
    assert ended.phase == "succeeded", (ended.message, pods.text(job))
    lines = pods.text(job)
    assert any(line.startswith("resolved 10.96.") for line in lines), lines
    return {place: f"{place} is open" in lines for place in places}


@pytest.mark.ci(guards=(*GUARDS, "jobs/core/egress.py", "deploy/default-deny.yaml"))
def test_a_port_of_a_job_is_open_to_its_own_pods_and_to_nobody_else(pods):
    pods.rig.manage("queue", "theirs", "--team", "vision", "--slots", "8", "--cluster", "walled", "--member", "admin")
    (pods.folder / "train.py").write_text(LISTENS)
    job = pods.client.submit(
        ["python3", "train.py"], queue="walled", framework="plain", nodes=2, nproc_per_node=1, directory=pods.folder
    )
    until(
        lambda: sorted(pods.text(job)) == ["listening", "reached its own job"], lambda: (pods.text(job), pods.states())
    )
    addresses = {one["metadata"]["name"]: one["status"]["podIP"] for one in pods.of(job)}
    (listener,) = [address for name, address in addresses.items() if name.endswith("-worker-0")]
    ports = [f"{listener}:{port}" for port in (29500, 8080)]
    control = pods.rig.url.partition("//")[2]
    kubelet, server = f"{pods.node.cable.node}:10250", pods.node.plane.url.partition("//")[2]

    assert tried(pods, "theirs", [*ports, control, kubelet, server], walled=server) == {
        **dict.fromkeys(ports, False), control: True, kubelet: False, server: False,
    }  # fmt: skip
    # what shows that the ports are closed by the policy, and not by the network: an open cluster's pod is refused too,
    # by the listener's own policy, and reaches everything else
    assert tried(pods, "pods", [*ports, control, kubelet, server]) == {
        **dict.fromkeys(ports, False), control: True, kubelet: True, server: True,
    }  # fmt: skip
    (pods.folder / "train.py").write_text(LISTENS)
    bare = pods.client.submit(
        ["python3", "train.py"], queue="pods", framework="plain", nodes=2, nproc_per_node=1, directory=pods.folder
    )
    until(lambda: "listening" in pods.text(bare))
    (open_one,) = [one["status"]["podIP"] for one in pods.of(bare) if one["metadata"]["name"].endswith("-worker-0")]
    assert tried(pods, "pods", [f"{open_one}:29500"]) == {f"{open_one}:29500": True}, "without a policy ports are open"
    assert tried(pods, "theirs", [f"{open_one}:29500"], walled=server) == {f"{open_one}:29500": False}, (
        "its own policy lets it out nowhere"
    )
