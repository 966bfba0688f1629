"""A real API server is asked about a template's pod by a dry run: its own words, and nothing is made."""

from dataclasses import replace

from jobs.clusters import Checked
from tests.cluster.conftest import plan
from tests.support.patience import until

VALID = {"name": "proxy", "image": "proxy:1"}


def shaped(**shape):
    asked = plan(1)
    (role,) = asked.roles
    return replace(asked, roles=(replace(role, shape=replace(role.shape, **shape)),))


def test_the_cluster_s_own_words_about_a_template_and_nothing_is_made(place):
    cluster = place.cluster()
    assert cluster.check(shaped(sidecars=(VALID,), init_containers=({**VALID, "name": "warm"},))) == Checked("valid")
    wrong = cluster.check(shaped(sidecars=({**VALID, "ports": [{"containerPort": 99_999_999}]},)))
    assert wrong.state == "invalid" and "spec.initContainers[0].ports[0].containerPort" in wrong.words
    term = {"topologyKey": "", "labelSelector": {}}
    wrong = cluster.check(shaped(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}))
    assert wrong.state == "invalid" and "topologyKey" in wrong.words
    assert place.pods() == {}


def test_what_a_policy_of_the_namespace_refuses_is_invalid_and_what_a_quota_refuses_is_not_checked(place):
    cluster = place.cluster()
    enforce = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    path = f"/api/v1/namespaces/{place.namespace}"
    assert place.admin.patch(path, json=enforce, headers=headers).status_code == 200
    refused = cluster.check(shaped(host_network=True))
    assert refused.state == "invalid" and "hostNetwork" in refused.words
    place.make("resourcequotas", {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})

    def is_full() -> bool:
        return cluster.check(shaped()).state == "not_checked"

    until(is_full)
    assert "exceeded quota" in cluster.check(shaped()).words
