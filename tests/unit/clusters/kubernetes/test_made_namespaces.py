"""What Muster puts into a namespace that it makes for a team, beside what an administrator would type."""

import pytest
import yaml

from jobs.clusters.kubernetes.build import namespaces
from jobs.clusters.kubernetes.reading.findings import WIDER, of_wider
from tests.support.kube_site import site_of
from tests.unit.clusters.kubernetes.test_inspection import DEPLOY, rules_of

SITE = site_of(NAMESPACE="muster-jobs")


def rules(role: str) -> list[dict]:
    found = yaml.safe_load_all((DEPLOY / "team-namespaces.yaml").read_text())
    return next(one["rules"] for one in found if one["kind"] == "ClusterRole" and one["metadata"]["name"] == role)


def test_the_roles_it_binds_are_those_of_the_account():
    assert rules(SITE.team_role) == rules_of("account.yaml", "Role")
    (reader,) = [
        one
        for one in yaml.safe_load_all((DEPLOY / "account.yaml").read_text())
        if (one["kind"], one["metadata"]["name"]) == ("Role", "muster-reader")
    ]
    assert rules(f"{SITE.team_role}-reader") == reader["rules"]
    (bind,) = [one for one in rules("muster-jobs-team-namespaces") if "resourceNames" in one]
    assert bind["resourceNames"] == [SITE.team_role, f"{SITE.team_role}-reader"] and bind["verbs"] == ["bind"]


def test_its_network_is_closed_as_the_file_closes_it():
    policy = namespaces.closed("nlp", SITE)[-1]
    written = yaml.safe_load((DEPLOY / "default-deny.yaml").read_text())
    assert policy.content == {name: written[name] for name in ("metadata", "spec")}
    assert policy.path == "apis/networking.k8s.io/v1/namespaces/nlp/networkpolicies"


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("system:serviceaccount:muster-system:muster", ("ServiceAccount", "muster", "muster-system")),
        ("muster@example.com", ("User", "muster@example.com", None)),
        ("system:serviceaccount:odd", ("User", "system:serviceaccount:odd", None)),
        ("x:system:serviceaccount:a:b", ("User", "x:system:serviceaccount:a:b", None)),
    ],
)
def test_the_binding_is_for_the_account_as_the_server_knows_it(user, subject):
    (found,) = namespaces.account("nlp", SITE, user=user).content["subjects"]
    assert (found["kind"], found["name"], found.get("namespace")) == subject


def test_what_holds_for_the_whole_cluster_is_said_with_the_file_that_grants_it():
    for one in WIDER:
        granted = rules_of(one.file.removeprefix("deploy/"), "ClusterRole")
        assert any(one.resource in rule["resources"] and one.verb in rule["verbs"] for rule in granted), one
    said = of_wider({WIDER[0]: True})
    assert said.state == "ok"
    assert said.words == (
        "granted: what pods of others hold of the GPUs (deploy/foreign-pods.yaml); not granted, and not needed: many "
        "namespaces of teams are followed with few watches (deploy/all-namespaces.yaml), Muster makes namespaces of "
        "teams (deploy/team-namespaces.yaml)"
    )
