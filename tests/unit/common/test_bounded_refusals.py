"""A refusal repeats only the beginning of a long value, in its value, its field and its message."""

import pytest

from common.errors import MOST_ECHOED, Conflict, Problem, bounded, shortened

LONG = "x" * 40_000
WORDS = "one two " * 5_000


@pytest.mark.parametrize("value", [LONG, WORDS, [LONG], {"a": WORDS}, "a\nb'" * 10_000])
def test_a_long_value_is_shortened_wherever_it_is_repeated(value):
    for message in (f"must be text, not {value}", f"must be text, not {value!r}; quote it"):
        problem = Problem("env.A", value, message)
        assert len(problem.value) == MOST_ECHOED and problem.value.endswith("…")
        assert len(problem.message) <= MOST_ECHOED + 60
        assert problem.message.startswith("must be text, not ")


def test_a_message_without_the_value_is_not_shortened():
    known = ", ".join(f"queue-{number}" for number in range(500))
    assert Problem("queue", "a", f"is not one of {known}").message == f"is not one of {known}"


@pytest.mark.parametrize("value", [None, True, 7, 1.5, "a" * MOST_ECHOED, ["a"]])
def test_a_short_value_keeps_its_type(value):
    assert Problem("a", value, "is wrong").value == value


def test_a_long_field_name_and_a_part_of_a_value_are_shortened():
    problem = Problem(f"env.{LONG}", None, f"begins with {LONG[:30_000]}=, which is wrong")
    assert len(problem.field) == MOST_ECHOED
    assert len(problem.message) <= MOST_ECHOED + 60
    assert problem.message.endswith(" which is wrong")


def test_a_conflict_is_bounded_too():
    conflict = Conflict(f"{WORDS} is there already; choose another name", "name", WORDS)
    assert len(conflict.value) == MOST_ECHOED
    assert str(conflict) == f"{shortened(WORDS)} is there already; choose another name"


def test_a_number_too_long_for_python_to_print_raises_no_error():
    assert Problem("nodes", 10**5000, "is too large").message == "is too large"
    assert bounded("short", 10**5000) == "short"
