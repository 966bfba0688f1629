"""The contract of every cluster adapter, on a real API server. KWOK simulates the pods, which end on request."""

import pytest

from tests.cluster.conftest import pod_name
from tests.contract.test_clusters import (
    Rig,
    test_a_deleted_attempt_cannot_be_created_again,
    test_a_reference_without_a_namespace_is_of_the_clusters_own,
    test_apply_is_idempotent,
    test_apply_leaves_running_replicas_as_they_are,
    test_attempts_of_one_job_are_independent,
    test_changes_name_the_job_that_changed,
    test_delete_ends_every_replica,
    test_delete_ends_replacements_too,
    test_delete_is_idempotent,
    test_deleting_an_attempt_prevents_its_later_creation,
    test_immediate_delete_ends_a_running_grace_period,
    test_open_attempts_are_listed_until_closed,
    test_replacing_a_lost_replica_leaves_the_others_running,
    test_replicas_never_created_are_absent,
    test_replicas_of_two_roles_run_and_end_together,
    test_replicas_run_after_apply,
)

__all__ = [
    "test_a_deleted_attempt_cannot_be_created_again",
    "test_a_reference_without_a_namespace_is_of_the_clusters_own",
    "test_apply_is_idempotent",
    "test_apply_leaves_running_replicas_as_they_are",
    "test_attempts_of_one_job_are_independent",
    "test_changes_name_the_job_that_changed",
    "test_delete_ends_every_replica",
    "test_delete_ends_replacements_too",
    "test_delete_is_idempotent",
    "test_deleting_an_attempt_prevents_its_later_creation",
    "test_immediate_delete_ends_a_running_grace_period",
    "test_open_attempts_are_listed_until_closed",
    "test_replacing_a_lost_replica_leaves_the_others_running",
    "test_replicas_never_created_are_absent",
    "test_replicas_of_two_roles_run_and_end_together",
    "test_replicas_run_after_apply",
]


@pytest.fixture
def rig(cluster, place) -> Rig:
    return Rig(cluster, lambda index: place.remove("pods", pod_name(index)))
