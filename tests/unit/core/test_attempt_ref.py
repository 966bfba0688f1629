"""The reference of an attempt: where it says no namespace, the cluster's own holds, and otherwise never."""

from jobs.core.attempt_ref import AttemptRef
from jobs.core.plan import Plan


def test_a_reference_keeps_its_namespace_and_takes_the_clusters_where_it_has_none():
    assert AttemptRef("7-abc", 2).within("new") == AttemptRef("7-abc", 2, "new")
    assert AttemptRef("7-abc", 2, "old").within("new") == AttemptRef("7-abc", 2, "old")
    assert AttemptRef("7-abc", 2).within("") == AttemptRef("7-abc", 2)


def test_attempts_of_one_number_in_two_namespaces_are_not_the_same():
    assert len({AttemptRef("7-abc", 1, name) for name in ("", "old", "new")}) == 3


def test_a_plan_names_the_attempt_that_it_launches():
    assert Plan("7-abc", 2, (), namespace="old").ref == AttemptRef("7-abc", 2, "old")
    assert Plan("7-abc", 2, ()).ref == AttemptRef("7-abc", 2)
