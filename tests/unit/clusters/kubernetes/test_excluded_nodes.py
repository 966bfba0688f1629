"""The affinity of pods that must stay away from nodes: joined to what the template and the attempt ask for already."""

from typing import Any

from jobs.clusters.kubernetes.build.placement import PREFERRED, REQUIRED, of_attempt
from jobs.core.plan import Plan, Role
from queues.shape import ReplicaShape
from tests.support.kube_site import site_of

BAD = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in ("gpu-1", "gpu-2")]
ZONES = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b")]


def affinity(*, excluded=("gpu-1", "gpu-2"), avoided=(), **own: Any) -> Any:
    role = Role("worker", 1, 1, ("true",), shape=ReplicaShape(affinity=own))
    plan = Plan("7-abc", 1, (role,), "torchrun", excluded_nodes=excluded, avoided_nodes=avoided)
    return of_attempt(plan, role, site_of()).get("affinity", {})


def test_without_other_wishes_the_nodes_are_ruled_out():
    assert affinity() == {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": BAD}]}}}
    assert affinity(excluded=()) == {}


def test_each_term_of_a_template_rules_them_out_as_any_one_may_match():
    own = {REQUIRED: {"nodeSelectorTerms": ZONES}, PREFERRED: [{"weight": 1, "preference": ZONES[0]}]}
    found = affinity(nodeAffinity=own)["nodeAffinity"]
    assert found[REQUIRED]["nodeSelectorTerms"] == [{**zone, "matchFields": BAD} for zone in ZONES]
    assert found[PREFERRED] == own[PREFERRED]


def test_nodes_that_failed_the_job_are_only_not_preferred():
    found = affinity(avoided=("gpu-3",))["nodeAffinity"]
    (preferred,) = found[PREFERRED]
    assert preferred["preference"]["matchFields"] == [
        {"key": "metadata.name", "operator": "NotIn", "values": ["gpu-3"]}
    ]
    assert found[REQUIRED]["nodeSelectorTerms"] == [{"matchFields": BAD}]
