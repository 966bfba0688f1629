"""The error classes, and what their docstring promises."""

from __future__ import annotations

import pytest
from muster import errors


@pytest.mark.parametrize("name", list(vars(errors)))
def test_the_docstring_lists_every_error(name: str) -> None:
    kind = vars(errors)[name]
    if isinstance(kind, type) and issubclass(kind, errors.MusterError):
        assert errors.__doc__ is not None
        assert name in errors.__doc__


@pytest.mark.parametrize("problem", [{}, {"errors": "x"}, {"errors": [1]}, {"detail": None, "errors": [{}]}])
def test_a_problem_of_any_shape_becomes_an_error(problem: dict[str, object]) -> None:
    assert str(errors.from_problem(400, problem=problem))


def test_a_detail_that_only_repeats_the_field_is_shown_once() -> None:
    field = {"field": "nodes", "message": "must be at least 1", "value": 0}
    error = errors.from_problem(400, problem={"detail": "must be at least 1", "errors": [field]})

    assert str(error) == "nodes: must be at least 1 (you gave 0)"


def test_a_detail_that_only_lists_the_fields_is_shown_once() -> None:
    fields = [{"field": name, "message": "must be at least 1", "value": 0} for name in ("nodes", "gpus")]
    problem = {"detail": "nodes: must be at least 1; gpus: must be at least 1", "errors": fields}

    assert str(errors.from_problem(422, problem=problem)) == (
        "nodes: must be at least 1 (you gave 0); gpus: must be at least 1 (you gave 0)"
    )


def test_a_value_that_the_message_names_is_not_repeated() -> None:
    assert str(errors.Problem("queue", "no queue nlp", "nlp")) == "queue: no queue nlp"
    assert str(errors.Problem("", "too much", "x" * 100)) == "too much"


def test_a_detail_of_several_lines_becomes_one() -> None:
    assert str(errors.ApiError(500, detail="one\ntwo")) == "one two"


def test_a_wait_timeout_is_also_a_builtin_timeout_error() -> None:
    assert issubclass(errors.WaitTimeout, TimeoutError)
