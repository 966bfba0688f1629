"""Tests that documents name as `folder/file.py::name`: whether there is one, and which sizes of bin/test run it."""

import ast
import importlib
from collections.abc import Collection
from functools import cache
from pathlib import Path

import pytest

from tests.support import lanes, sizes

TESTS = Path(__file__).resolve().parents[1]


@cache
def names(path: Path) -> frozenset[str]:
    """Functions and classes of a module; none where there is no such file."""
    if not path.is_file():
        return frozenset()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(one.name for one in ast.parse(path.read_text()).body if isinstance(one, kinds))


def exists(path: str, name: str) -> bool:
    """Whether a file, relative to tests/, has a test of this name."""
    return name.lower().startswith("test") and name in names(TESTS / path)


def sizes_of(path: str, name: str) -> frozenset[str]:
    """The sizes of bin/test that run this test, which exists."""
    try:
        module = importlib.import_module(f"tests.{path.removesuffix('.py').replace('/', '.')}")
    except pytest.skip.Exception:  # or the test that asks would be skipped with it
        return frozenset()
    given = (getattr(one, "pytestmark", []) for one in (module, getattr(module, name)))
    marks = [mark for found in given for mark in (found if isinstance(found, list) else [found])]
    return sizes_with(path, {mark.name for mark in marks})


def sizes_with(path: str, marks: Collection[str]) -> frozenset[str]:
    """The sizes that run a test of this file with these marks: not those that leave out its lane."""
    lane = next((one for one in lanes.LANES if path.startswith(f"{one}/")), "")
    if "skip" in marks or not lane:
        return frozenset()
    return frozenset(size for size in sizes.MARKS[sizes.strictest(marks)] if lane not in lanes.SIZES[size][0])
