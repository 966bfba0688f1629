"""The keeper of a claim: its pod as a whole, that nothing takes it for a replica, and what its answers are read as."""

import json
from pathlib import Path

import pytest
import yaml

from jobs.clusters.kubernetes.build import keeper, labels
from jobs.clusters.kubernetes.facts.pods import read_pod
from jobs.clusters.kubernetes.storage.keeper import read, why
from jobs.core.keeping import MOST_FOLDERS, Errand, Kept
from tests.support.kube_site import site_of
from volumes.use import Use

GOLDEN = Path(__file__).with_name("golden")
SITE = site_of(
    REQUESTS={"cpu": "8"}, LIMITS={"memory": "64Gi"}, NODE_SELECTOR={"pool": "a100"}, USER=4000,
    TOLERATIONS=[{"key": "gpu", "operator": "Exists"}], PULL_SECRETS=["registry"], PRIORITY_CLASS="high", SCHEDULER="gang",
    ANNOTATIONS={"sidecar.istio.io/inject": "false"},
)  # fmt: skip
DELETES = Errand("scratch", "muster-jobs", "teams/jobs", ("41-abcdef", "42-ghijkl"))
LOOKS = Errand("muster-volume-nlp.datasets")


@pytest.mark.parametrize(("name", "errand"), [("keeper-that-deletes", DELETES), ("keeper-that-looks", LOOKS)])
def test_its_pod_matches_the_golden_file(name, errand):
    made, path = keeper.pod(errand, site=SITE, agent="muster-agent-1"), GOLDEN / f"{name}.yaml"
    if not path.exists():
        path.write_text(yaml.safe_dump(made, sort_keys=False))
        pytest.fail(f"{path} is new: look at it, and run again")
    assert made == yaml.safe_load(path.read_text())


@pytest.mark.parametrize("errand", [DELETES, LOOKS])
def test_nothing_takes_it_for_a_replica(errand):
    made = keeper.pod(errand, site=site_of(LABELS={"team": "nlp"}), agent="muster-agent-1")
    assert read_pod(made) is None and labels.replica_of(made["metadata"]["labels"]) is None
    assert labels.OURS not in made["metadata"]["labels"] and made["metadata"]["labels"]["team"] == "nlp"
    assert labels.attempt_of_name(made["metadata"]["name"]) == ("", 0)


def test_a_claim_has_one_name_and_each_errand_its_own_digest():
    others = [Errand("scratch", folders=("1-a",)), Errand("scratch", path="jobs", folders=("1-a",)), Errand("scratch")]
    assert {labels.keeper(one.claim) for one in others} == {labels.keeper("scratch")}
    assert labels.keeper("scratch") != labels.keeper("scratch-2")
    assert len({one.digest for one in (*others, Errand("scratch-2"))}) == 4


@pytest.mark.parametrize("name", ["..", "a", "1-abc/..", "", "1-abc\n", "1_a"])
def test_an_errand_names_runs_alone(name):
    with pytest.raises(ValueError, match="no keeper deletes these folders"):
        Errand("scratch", folders=("1-abc", name))


def test_an_errand_is_bounded():
    with pytest.raises(ValueError, match="101"):
        Errand("scratch", folders=tuple(f"{number}-a" for number in range(MOST_FOLDERS + 1)))


def line(**said: object) -> bytes:
    return json.dumps({"keeper": 1, **said}).encode()


@pytest.mark.parametrize(
    ("log", "kept"),
    [
        (b"", None),
        (b"Traceback: no module\n{}\n[1]\n3", None),
        (line(gone=["41-abcdef"], left={}, late=[], use=None), Kept(frozenset({"41-abcdef"}))),
        (b"a warning\n" + line(gone=[], use={"total": 9, "free": 4, "written_at": 7}) + b"\nat its end\n", Kept(use=Use(9, 4, 7.0))),
        (line(gone=["41-abcdef", "7-other", 3, ["x"]], late=["42-ghijkl"]), Kept(frozenset({"41-abcdef"}), late=frozenset({"42-ghijkl"}))),
        (line(gone=["41-abcdef"], left={"41-abcdef": "Permission\x1b[31m denied", "7-other": "x"}), Kept(left={"41-abcdef": "Permission [31m denied"})),
        (line(gone="41-abcdef", left=["x"], late=5, use={"total": "many"}), Kept()),
        (line(use={"total": -1, "free": 0, "written_at": 1}), Kept()),
    ],
)  # fmt: skip
def test_its_answer_is_read_strictly(log, kept):
    assert read(log, DELETES) == kept


def test_why_it_did_nothing():
    unscheduled = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}
    waiting = {
        "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]
    }
    ended = {"containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled"}}}]}
    late = {"phase": "Failed", "message": "Pod was active on the node longer than the specified deadline"}
    words = [why({"status": one}) for one in (unscheduled, waiting, ended, late, {})]
    assert words == ["0/3 nodes are available", "no such image", "OOMKilled", late["message"], "it gives no reason"]
