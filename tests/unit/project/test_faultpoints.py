"""Every commit and every external call has a fault point before and after it, and a point fires once."""

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent import faultpoints as agent_faultpoints
from common import faultpoints

ROOT = Path(__file__).resolve().parents[3]
# Not accounts, credentials and queues: each change there is one transaction without external calls, so a crash in it would only test
# Postgres.
FOLDERS = ("common", "controlplane", "jobs", "workspaces")
# The supervisor of the embedded installation is not part of the control plane; a command is run by a person.
# Callers of trees.py have the points; npm.py runs while Muster is installed; backup and restore are commands, too, and
# each of these is one transaction; so is moving files. The stores' own callers have the points.
LEFT_OUT = (
    "migrations",
    "migration_operations.py",
    "embedded",
    "commands",
    "trees.py",
    "npm.py",
    "archive.py",
    "backup.py",
    "restore.py",
    "restored_jobs.py",
    "moving.py",
)
LEFT_OUT += ("file_store.py", "object_storage.py")
WRITES = frozenset(
    {"save", "create", "update", "delete", "bulk_create", "bulk_update", "get_or_create", "update_or_create"}
)
# Modules that have points of their own, and plain values with methods of these names: by file, so that each is reviewed.
NO_ROWS = frozenset(
    {
        ("", "attrs"),
        ("", "files"),
        ("", "storage"),
        ("", "services"),
        ("attempt_rows.py", "objects"),  # the store calls it, and is checked for that below
        ("frames.py", "found"),
        ("garbage.py", "digests"),
        ("manifest.py", "tree"),
        ("trace_export.py", "Resource"),
        ("translate.py", "segment"),
        ("translate.py", "setdefault"),
        ("packing.py", "digest"),
    }
)
# External calls as (last word of the receiver, method). A function that is only called within a guard needs none itself.
OUTSIDE = frozenset(
    {
        ("trees", "remove"),
        ("cluster", "apply"),
        ("cluster", "observe"),
        ("cluster", "delete"),
        ("cluster", "read_log"),
        ("api", "call"),
        ("_api", "call"),
        ("_api", "lines"),
        ("host", "spawn"),
        ("shutil", "rmtree"),
        ("replica_rows", "write"),
        ("attempt_rows", "write"),
        ("current_app", "send_task"),
        ("redis_client", "publish"),
        ("file", "save"),
        ("file", "open"),
        ("file_store", "read_slice"),
        ("file_store", "touch"),
        ("default_storage", "save"),
        ("default_storage", "open"),
        ("default_storage", "delete"),
    }
)


@dataclass
class Module:
    """The writes and calls of one file, each with its function and whether it is guarded."""

    path: Path
    guards: list[tuple[str, str]] = field(default_factory=list)  # (kind, name)
    bare: list[str] = field(default_factory=list)  # transactions without points
    open_writes: list[tuple[str, str]] = field(default_factory=list)  # (function, what) outside of every guard
    callers: dict[str, set[tuple[str, bool]]] = field(default_factory=dict)  # name -> (function, is guarded)

    def unguarded(self) -> list[str]:
        """Writes and external calls that can be reached without passing a guard."""
        inside = self._always_inside()
        return [what for function, what in self.open_writes if function not in inside]

    def _always_inside(self) -> set[str]:
        """Functions that this file calls only within a guard, directly or through another such function."""
        inside: set[str] = set(self.callers)
        while True:
            kept = {
                name
                for name in inside
                if all(is_guarded or function in inside for function, is_guarded in self.callers[name])
            }
            if kept == inside:
                return inside
            inside = kept


class Reader(ast.NodeVisitor):
    def __init__(self, module: Module):
        self.module, self.functions, self.depth = module, ["<module>"], 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        depth, self.depth = self.depth, 0  # a guard around a definition does not guard its calls
        self.functions.append(node.name)
        self.generic_visit(node)
        self.functions.pop()
        self.depth = depth

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the naming convention of ast.NodeVisitor

    def visit_With(self, node: ast.With) -> None:
        """A guard also covers the items that follow it in the same `with` statement."""
        count = 0
        for item in node.items:
            guard = _guard(item.context_expr)
            if guard:
                self.module.guards.append(guard)
                self.depth, count = self.depth + 1, count + 1
            else:
                self.visit(item.context_expr)
        for statement in node.body:
            self.visit(statement)
        self.depth -= count

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr == "atomic" and _last(node.value) == "transaction":
            self.module.bare.append(self._where(node, "transaction.atomic"))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        self.module.callers.setdefault(name, set()).add((self.functions[-1], self.depth > 0))
        if isinstance(node.func, ast.Attribute) and not self.depth:
            receiver = _last(node.func.value)
            if (receiver, name) in OUTSIDE or (name in WRITES and self._is_row(node.func.value, receiver)):
                self.module.open_writes.append((self.functions[-1], self._where(node, f"{receiver}.{name}")))
        self.generic_visit(node)

    def _is_row(self, receiver: ast.expr, name: str) -> bool:
        """Whether a `.save()`, `.update()`... is called on a row or a queryset, as far as static analysis can tell."""
        if isinstance(receiver, ast.Constant | ast.Dict | ast.Set):
            return False
        return not {("", name), (self.module.path.name, name)} & NO_ROWS

    def _where(self, node: ast.expr, what: str) -> str:
        return f"{self.module.path.relative_to(ROOT)}:{node.lineno} {what}"


def _guard(node: ast.expr) -> tuple[str, str] | None:
    """("atomic", "store.take") for `faultpoints.atomic("store.take")`."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="faultpoints"), attr=("atomic" | "around") as kind),
            args=[ast.Constant(value=str(name))],
        ):
            return kind, name
    return None


def _last(node: ast.expr) -> str:
    """The last name of a method's receiver: "host" for `self.host`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner) | ast.Call(func=inner) | ast.Await(value=inner):
            return _last(inner)
    return ""


def modules() -> Iterator[Module]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not set(path.parts) & set(LEFT_OUT) and path.name != "faultpoints.py":
                yield read(path.read_text(), path)


def read(text: str, path: Path = ROOT / "x.py") -> Module:
    module = Module(path)
    Reader(module).visit(ast.parse(text))
    return module


def test_every_transaction_has_fault_points():
    assert [where for module in modules() for where in module.bare] == []


def test_every_write_and_every_external_call_has_fault_points():
    assert [where for module in modules() for where in module.unguarded()] == []


def test_clusters_are_called_only_through_functions_with_fault_points():
    """The tests above check `Api.call` and `Api.lines`; a module with an HTTP session of its own would escape them."""
    folder = ROOT / "jobs" / "clusters"
    found = [path.name for path in sorted(folder.rglob("*.py")) if "aiohttp" in path.read_text()]
    assert found == ["client.py", "session.py"]  # the latter opens it for the former


def test_every_fault_point_is_in_exactly_one_file_and_listed():
    found = [name for module in modules() for name in {name for _, name in module.guards}]
    assert Counter(found) == Counter(faultpoints.NAMES)


def test_the_agents_points_are_listed_too():
    folder = ROOT / "agent"
    found = [
        name
        for path in sorted(folder.rglob("*.py"))
        if path.name != "faultpoints.py"
        for _, name in read(path.read_text()).guards
    ]
    assert Counter(found) == Counter(agent_faultpoints.NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "def act():\n    with transaction.atomic():\n        pass\n",
        "@transaction.atomic\ndef act():\n    pass\n",
    ],
)
def test_a_transaction_without_points_is_found(text):
    assert read(text).bare


@pytest.mark.parametrize(
    ("text", "is_well"),
    [
        ("def act():\n    Job.objects.filter(pk=1).update(x=1)\n", False),
        ("def act(row):\n    row.save()\n", False),
        ("def act(row):\n    with faultpoints.atomic('a'):\n        row.save()\n", True),
        (
            "def act(row):\n    with faultpoints.atomic('a'):\n        _write(row)\ndef _write(row):\n    row.save()\n",
            True,
        ),
        ("def act(row):\n    _write(row)\ndef _write(row):\n    row.save()\n", False),
        # One unguarded call is enough.
        (
            "def act(row):\n    with faultpoints.atomic('a'):\n        _write(row)\n    _write(row)\ndef _write(row):\n    row.save()\n",
            False,
        ),
        ("def act(cluster):\n    cluster.apply(1)\n", False),
        ("def act(self):\n    self.host.spawn(1)\n", False),
        ("def act(cluster):\n    with faultpoints.around('a'):\n        cluster.apply(1)\n", True),
        ("def act():\n    with default_storage.open('x') as file:\n        file.read()\n", False),
        (
            "def act():\n    with faultpoints.around('a'), default_storage.open('x') as file:\n        file.read()\n",
            True,
        ),
        ("async def act(self):\n    await self.api.call('GET', 'x')\n", False),
        (
            "async def act(api):\n    with faultpoints.around('a'):\n        await _ask(api)\nasync def _ask(api):\n    await api.call('x')\n",
            True,
        ),
        ("def act(self):\n    return self._api.lines('x')\n", False),
        # A function defined within a guard is not called within it.
        ("def act(row):\n    with faultpoints.atomic('a'):\n        def later():\n            row.save()\n", False),
    ],
)
def test_the_reader_finds_unguarded_writes_and_nothing_else(text, is_well):
    assert (read(text).unguarded() == []) is is_well


PASS_TWICE = """
import sys
from {module} import around, point
point("first.before")
with around("second"):
    print("inside", flush=True)
print("out", flush=True)
"""


def pass_points(tmp_path: Path, module: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", PASS_TWICE.format(module=module)],
        env={**os.environ, "CRASH_MARKS": str(tmp_path), **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("module", ["common.faultpoints", "agent.faultpoints"])
def test_a_named_point_ends_the_process_once_and_leaves_its_mark(tmp_path, module):
    env = {"CRASH_AT": "first.before,second.after"}
    first = pass_points(tmp_path, module, **env)
    assert (first.returncode, first.stdout) == (-9, "")
    second = pass_points(tmp_path, module, **env)
    assert (second.returncode, second.stdout) == (-9, "inside\n")
    assert pass_points(tmp_path, module, **env).stdout == "inside\nout\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.before", "second.after"]
    assert (tmp_path / "first.before").read_text().split()[0].isdigit()


@pytest.mark.parametrize("module", ["common.faultpoints", "agent.faultpoints"])
def test_a_point_can_be_armed_at_runtime(tmp_path, module):
    (tmp_path / "second.before.armed").touch()
    assert pass_points(tmp_path, module).returncode == -9
    assert pass_points(tmp_path, module).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["second.before"]


@pytest.mark.parametrize("module", ["common.faultpoints", "agent.faultpoints"])
def test_no_point_fires_without_a_folder_for_marks(tmp_path, module):
    (tmp_path / "second.before.armed").touch()
    ended = pass_points(tmp_path, module, CRASH_MARKS="", CRASH_AT="first.before")
    assert ended.stdout == "inside\nout\n"
