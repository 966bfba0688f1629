"""Every benchmark can at least be imported: they run too rarely to show that something they use is gone."""

import importlib
import pkgutil

import bench
from bench.__main__ import NAMES

SCRIPTS = {"__main__", "timed"}  # what they do happens on import
MODULES = sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in SCRIPTS)


def test_every_module_of_the_benchmarks_can_be_imported():
    assert len(MODULES) > 20
    for name in MODULES:
        importlib.import_module(f"bench.{name}")


def test_every_named_benchmark_has_a_module():
    assert set(NAMES) <= set(MODULES)
    assert all(callable(importlib.import_module(f"bench.{name}").run) for name in NAMES)
