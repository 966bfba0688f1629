"""Files of SQL: each is used, is shipped, says what it is for, and is read at the top level of a module with constants only."""

import ast
import fnmatch
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SERVER = ("accounts", "common", "controlplane", "embedded", "jobs", "queues", "workspaces", "credentials", "volumes")
FILES = sorted(str(path.relative_to(ROOT)) for one in SERVER for path in (ROOT / one).rglob("*.sql"))
MOST_LINES = 4  # of a statement in a Python file
IS_SQL = re.compile(r"^\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH)\s", re.S)


def modules() -> dict[Path, ast.Module]:
    found = (path for one in SERVER for path in sorted((ROOT / one).rglob("*.py")) if "migrations" not in path.parts)
    return {path: ast.parse(path.read_text()) for path in found}


def loads(tree: ast.AST) -> list[ast.Call]:
    return [one for one in ast.walk(tree) if isinstance(one, ast.Call) and ast.unparse(one.func) == "sql.load"]


def test_every_file_is_used_and_every_used_one_exists():
    used = {one.args[0].value for tree in modules().values() for one in loads(tree)}
    assert sorted(used) == FILES


def test_files_are_read_when_their_module_is_imported():
    """So a missing one is found at the start, and no statement is put together from what a request brings."""
    for path, tree in modules().items():
        functions = [
            one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        ]
        assert not [one for function in functions for one in loads(function)], path
        for one in loads(tree):
            assert len(one.args) == 1 and isinstance(one.args[0], ast.Constant), (path, one.lineno)


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_what_it_is_for(name):
    comment = [line for line in (ROOT / name).read_text().splitlines() if line.startswith("--")]
    assert re.match(r"-- [A-Z].*", comment[0])
    if "parts" not in Path(name).parts:
        (runs,) = re.findall(r"^-- Run by (\S+\.py) \((\w+)\)", "\n".join(comment), re.M)
        assert f"def {runs[1]}(" in (ROOT / runs[0]).read_text() and name in (ROOT / runs[0]).read_text()


def test_long_statements_stand_in_files():
    """Ruff (S608) refuses those in f-strings."""
    found = [
        f"{path.relative_to(ROOT)}:{one.lineno}"
        for path, tree in modules().items()
        for one in ast.walk(tree)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and IS_SQL.match(one.value)
        if len(one.value.strip().splitlines()) > MOST_LINES
    ]
    assert found == []


def test_they_are_shipped_with_the_python_files():
    """The image has whole folders, and nothing keeps these files out of what it is built from."""
    copied = set(re.findall(r"^COPY --from=build /build/(\w+) (?=\w+$)", (ROOT / "Dockerfile").read_text(), re.M))
    assert {name.partition("/")[0] for name in FILES} <= copied
    for pattern in (ROOT / ".dockerignore").read_text().split():
        place = pattern.removeprefix("**/")
        assert not [name for name in FILES if fnmatch.fnmatch(name, place) or name.startswith(f"{place}/")], pattern
