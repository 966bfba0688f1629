"""10,000 random schedules cause no violation; with any one guard removed, one shows within 1,000.

Each claim has a small part that always runs, and the rest of its schedules in the full run.
"""

import pytest

from tests.simulation.adapters import local, memory
from tests.simulation.world import ELASTIC, GUARDS, HEADED, STRICT, Violation, World


def first_violation(
    make_adapter, schedules: range, guards: frozenset[str], roles=STRICT, tell=None
) -> tuple[int, str] | None:
    for seed in schedules:
        world = World(seed, make_adapter, guards, roles)
        try:
            world.run()
            if tell is not None:
                tell(world)
        except Violation as error:
            return seed, str(error)
        finally:
            if close := getattr(world.adapter_world, "close", None):
                close()
    return None


def full(make_adapter, first: int, end: int):
    return pytest.param(make_adapter, range(first, end), marks=pytest.mark.full)


@pytest.mark.parametrize(
    ("make_adapter", "schedules"),
    [
        (memory, range(800)),
        *(full(memory, first, first + 2100) for first in range(800, 9200, 2100)),
        (local, range(20_000, 20_080)),
        *(full(local, first, first + 180) for first in range(20_080, 20_800, 180)),
    ],
)
def test_no_schedule_starts_two_attempts_or_loses_the_job(make_adapter, schedules):
    assert first_violation(make_adapter, schedules, GUARDS) is None


@pytest.mark.parametrize(
    ("make_adapter", "schedules"),
    [
        (memory, range(60_000, 60_400)),
        full(memory, 60_400, 61_500),
        (local, range(70_000, 70_040)),
        full(local, 70_040, 70_150),
    ],
)
def test_no_schedule_starts_two_attempts_or_loses_a_job_of_two_roles(make_adapter, schedules):
    assert first_violation(make_adapter, schedules, GUARDS, HEADED) is None


@pytest.mark.parametrize(
    ("make_adapter", "schedules"),
    [
        (memory, range(40_000, 40_200)),
        full(memory, 40_200, 40_500),
        (local, range(50_000, 50_020)),
        full(local, 50_020, 50_050),
    ],
)
def test_no_schedule_doubles_a_replica_or_ends_an_elastic_job_without_cause(make_adapter, schedules):
    replaced = []
    found = first_violation(
        make_adapter, schedules, GUARDS, ELASTIC, lambda world: replaced.append(world.store.replaced)
    )
    assert found is None
    assert sum(count > 0 for count in replaced) > len(schedules) / 20, "too few schedules replaced anybody"


@pytest.mark.parametrize("guard", sorted(GUARDS))
@pytest.mark.parametrize("make_adapter", [memory, local])
def test_without_any_one_guard_a_violation_is_found_within_1000_schedules(guard, make_adapter):
    found = first_violation(make_adapter, range(1000), GUARDS - {guard})
    assert found is not None, f"nothing went wrong without the guard {guard}: it guards nothing, or we do not see it"
