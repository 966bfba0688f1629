"""The table of a job's fields, from which everything else derives."""

import dataclasses

import pytest

from common.errors import InvalidSpec
from jobs.core.fields import FIELDS, MAX_PROCESSES_PER_NODE, Type
from jobs.core.spec import JobSpec, parse

OF_THE_SPEC = {field.name: field for field in dataclasses.fields(JobSpec)}
NUMBERS = [field for field in FIELDS.values() if field.type is Type.WHOLE]


def test_the_table_lists_exactly_the_fields_of_a_job():
    # A total of GPUs becomes nodes and processes, a restart policy retries.
    assert set(FIELDS) - {"gpus", "restart_policy"} == set(OF_THE_SPEC) - {"options"}


@pytest.mark.parametrize("field", [one for one in FIELDS.values() if one.default is not None], ids=lambda one: one.name)
def test_the_published_default_is_the_one_that_applies(field):
    assert OF_THE_SPEC[field.name].default == field.default
    assert getattr(parse({"command": "true"}), field.name) == field.default


@pytest.mark.parametrize("field", NUMBERS, ids=lambda one: one.name)
def test_numbers_are_accepted_only_within_their_bounds(field):
    needed = {"from_job": 1} if field.name == "from_step" else {}
    for number in (field.least, field.most):
        parse({"command": "true", **needed, field.name: number}, gpus_per_node=MAX_PROCESSES_PER_NODE)
    for number in (field.least - 1, field.most + 1):
        with pytest.raises(InvalidSpec) as caught:
            parse({"command": "true", **needed, field.name: number})
        (problem,) = caught.value.problems
        assert problem.field == field.name and field.remedy in problem.message


def test_every_field_is_explained():
    assert all(field.label and len(field.help) > 10 for field in FIELDS.values())
    assert all(field.remedy for field in FIELDS.values() if field.least is not None)
