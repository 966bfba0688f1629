"""The contract of every cluster adapter, on a real API server. KWOK simulates the pods, which end on request."""

import pytest

from tests.cluster.conftest import pod_name
from tests.contract.test_clusters import (
    Rig,
    test_a_late_call_for_the_replica_before_changes_nothing,
    test_a_lost_replica_is_replaced_and_the_others_notice_nothing,
    test_a_sealed_attempt_can_not_be_created_again,
    test_an_attempt_can_be_sealed_before_it_was_created,
    test_apply_twice_creates_nothing_twice,
    test_at_once_takes_the_grace_away_from_what_is_ending_already,
    test_changes_name_the_run_that_changed,
    test_delete_ends_everything_and_says_so,
    test_deleting_twice_is_the_same_as_once,
    test_replicas_of_two_roles_run_and_end_together,
    test_replicas_run_after_apply,
    test_the_end_of_an_attempt_ends_replicas_that_came_back_too,
    test_the_next_attempt_is_another_one,
    test_what_is_open_is_listed_until_it_was_closed,
    test_what_was_never_created_is_absent,
)

__all__ = [
    "test_a_late_call_for_the_replica_before_changes_nothing",
    "test_a_lost_replica_is_replaced_and_the_others_notice_nothing",
    "test_a_sealed_attempt_can_not_be_created_again",
    "test_an_attempt_can_be_sealed_before_it_was_created",
    "test_apply_twice_creates_nothing_twice",
    "test_at_once_takes_the_grace_away_from_what_is_ending_already",
    "test_changes_name_the_run_that_changed",
    "test_delete_ends_everything_and_says_so",
    "test_deleting_twice_is_the_same_as_once",
    "test_replicas_of_two_roles_run_and_end_together",
    "test_replicas_run_after_apply",
    "test_the_end_of_an_attempt_ends_replicas_that_came_back_too",
    "test_the_next_attempt_is_another_one",
    "test_what_is_open_is_listed_until_it_was_closed",
    "test_what_was_never_created_is_absent",
]


@pytest.fixture
def rig(cluster, place) -> Rig:
    return Rig(cluster, lambda index: place.remove("pods", pod_name(index)))
