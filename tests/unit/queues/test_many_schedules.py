"""The properties of admission once more, with a hundred thousand random schedules."""

import pytest

from tests.support.schedules import properties
from tests.unit.queues import test_cohorts, test_fleet, test_policies

EVERY = list(properties(test_cohorts, test_fleet, test_policies))


def test_every_property_is_tried_harder():
    assert len(EVERY) >= 12


@pytest.mark.soak(guards=("queues/admission",), repeats=True)
@pytest.mark.parametrize("prop", EVERY, ids=lambda prop: prop.__name__.removeprefix("test_"))
def test_it_holds_for_many_more_schedules(prop):
    """This size has given each its number already."""
    prop()
