"""A cluster that an administrator adds: asked first, sealed, used without a restart, and found when it is there twice."""

import base64
import json
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml

from common.errors import Conflict, InvalidInput
from jobs import clusters
from jobs.core.attempt_ref import AttemptRef
from jobs.submission import cluster_entries, inspecting
from queues import clusters as entries
from queues.models import AddedCluster
from tests.cluster.conftest import TOLERATIONS, end, run_all
from tests.support.patience import until

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def near(settings):
    """API servers of the tests are on this machine, where no added cluster may be unless the setting says so."""
    settings.MUSTER_CLUSTER_NETWORKS = [ip_network("127.0.0.0/8")]
    entries.forget()
    yield
    for one in clusters.adapters.made().values():
        if hasattr(one, "close"):
            one.close()
    clusters.adapters.clear()
    entries.forget()


def options(place, **more):
    named = {
        "NAMESPACE": place.namespace,
        "IMAGE": "x:1",
        "CONTROL_URL": "http://muster.test",
        "TOLERATIONS": TOLERATIONS,
    }
    return {**named, **more}


def document(place):
    """The account's kubeconfig, with its authority in it instead of a path."""
    found = yaml.safe_load(place.kubeconfig.read_text())
    cluster = found["clusters"][0]["cluster"]
    cluster["certificate-authority-data"] = base64.b64encode(
        Path(cluster.pop("certificate-authority")).read_bytes()
    ).decode()
    return found


def add(place, people, **given):
    given = {"name": "h100", "options": options(place), "kubeconfig": yaml.safe_dump(document(place)), **given}
    return cluster_entries.add(by=people.admin, **given)


def test_a_job_runs_on_it_at_once_and_goes_on_when_the_credentials_are_replaced(place, people):
    row = add(place, people)
    token = yaml.safe_load(place.kubeconfig.read_text())["users"][0]["user"]["token"]
    assert token not in json.dumps(AddedCluster.objects.values().get(), default=str)
    found = inspecting.inspect("h100")
    assert ("rights", "wrong") not in {(one.about, one.state) for one in found} and found[0].about == "version"
    before = clusters.get("h100")
    run_all(before)
    cluster_entries.change(by=people.admin, row=row, version=1, kubeconfig=yaml.safe_dump(document(place)))
    after = clusters.get("h100")
    assert after is not before
    ref = AttemptRef("7-abc", 1)
    until(
        lambda: {one.state.value for one in after.observe(ref, [("worker", 0), ("worker", 1)]).replicas} == {"running"}
    )
    end(after)


def test_a_second_entry_of_one_namespace_is_refused_however_it_is_reached(place, people, settings):
    add(place, people)
    with pytest.raises(Conflict, match="cluster h100 is this cluster with the same namespace already"):
        add(place, people, name="again")
    # by another name of the same server, as from inside of the cluster: its keys tell
    asked = document(place)
    asked["clusters"][0]["cluster"]["server"] = asked["clusters"][0]["cluster"]["server"].replace(
        "127.0.0.1", "localhost"
    )
    asked["clusters"][0]["cluster"]["tls-server-name"] = "127.0.0.1"
    with pytest.raises(Conflict, match="cluster h100 is this cluster"):
        add(place, people, name="again", kubeconfig=yaml.safe_dump(asked))
    settings.CLUSTERS = {
        **settings.CLUSTERS,
        "kept": {"BACKEND": entries.KUBERNETES, "OPTIONS": options(place, KUBECONFIG=str(place.kubeconfig))},
    }
    AddedCluster.objects.all().delete()
    entries.forget()
    with pytest.raises(Conflict, match="cluster kept is this cluster"):
        add(place, people)
    assert not AddedCluster.objects.exists()


def test_what_does_not_lead_to_a_cluster_is_refused_in_its_words_and_not_stored(place, people, settings):
    asked = document(place)
    asked["users"][0]["user"]["token"] = "nobody"
    with pytest.raises(InvalidInput, match="does not lead to a cluster: answers 401"):
        add(place, people, kubeconfig=yaml.safe_dump(asked))
    asked = document(place)
    asked["clusters"][0]["cluster"]["tls-server-name"] = "elsewhere.example"
    with pytest.raises(InvalidInput, match=r"the certificate of .* is not accepted"):
        add(place, people, kubeconfig=yaml.safe_dump(asked))
    settings.MUSTER_CLUSTER_NETWORKS = []
    with pytest.raises(
        InvalidInput, match=r"127.0.0.1 is not a public one; .* add its network to MUSTER_CLUSTER_NETWORKS"
    ):
        add(place, people)
    assert not AddedCluster.objects.exists()
    assert not place.pods()
