"""How many random schedules a property of admission is tried with: thousands in CI, ten thousand in all, a hundred thousand in soak.

Those are of all properties together.
"""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from hypothesis import settings

from tests.support import sizes

TIMES = {"all": 3, "soak": 30}
Property = Callable[..., Any]


def schedules(count: int) -> Callable[[Property], Property]:
    """Let `given` try a property with so many in CI, and with more in larger sizes. Stands below it."""

    def decorate(prop: Property) -> Property:
        prop.schedules = count  # type: ignore[attr-defined]
        return settings(max_examples=count * TIMES.get(sizes.chosen, 1), deadline=None)(prop)

    return decorate


def properties(*modules: ModuleType) -> Iterator[Property]:
    """Yield the properties of these modules of tests."""
    for module in modules:
        for one in vars(module).values():
            if hasattr(getattr(getattr(one, "hypothesis", None), "inner_test", None), "schedules"):
                yield one
