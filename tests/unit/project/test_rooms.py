"""Rules beyond the import contracts: packages have few rooms in few layers, and no code or test reads private names."""

import ast
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = (
    "accounts",
    "agent",
    "common",
    "controlplane",
    "credentials",
    "embedded",
    "jobs",
    "queues",
    "rig",
    "volumes",
    "workspaces",
)


# The rooms that a reader has to hold in mind: subpackages and modules directly in a package, the arrows between them
# (one room imports the other), and the layers they lie in. Room for one or two more; who needs that draws anew first.
ROOMS = {
    # package: most rooms, arrows, layers
    "jobs": (21, 81, 9),
    "jobs.clusters.kubernetes": (11, 30, 6),
    "agent": (19, 48, 9),
    "common": (16, 18, 4),
    "controlplane": (16, 15, 4),
    "muster": (12, 25, 8),
}


@cache
def graph(name: str) -> grimp.ImportGraph:
    return grimp.build_graph(name, exclude_type_checking_imports=True)


@cache
def imports(package: str) -> dict[str, set[str]]:
    """The rooms of a package, each with the others it imports."""
    drawn = graph(package.partition(".")[0])
    rooms = drawn.find_children(package)
    return {
        room: {
            other
            for other in rooms - {room}
            if drawn.direct_import_exists(importer=room, imported=other, as_packages=True)
        }
        for room in rooms
    }


def layers(rooms: dict[str, set[str]]) -> list[set[str]]:
    """The rooms from the ground up: each imports only rooms of layers below. Fails where rooms import each other."""
    found = list[set[str]]()
    left = dict(rooms)
    while left:
        free = {room for room, others in left.items() if not others & left.keys()}
        assert free, f"these rooms import each other, so none lies above the others: {sorted(left)}"
        found.append(free)
        left = {room: others for room, others in left.items() if room not in free}
    return found


@pytest.mark.parametrize(("package", "most"), ROOMS.items())
def test_a_package_has_few_rooms_and_no_arrow_upwards(package, most):
    rooms = imports(package)
    counts = (len(rooms), sum(map(len, rooms.values())), len(layers(rooms)))
    for what, count, limit in zip(("rooms", "arrows", "layers"), counts, most, strict=True):
        assert count <= limit, f"{package} has {count} {what}"


def test_rooms_that_import_each_other_are_found():
    with pytest.raises(AssertionError, match="import each other"):
        layers({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()})
    assert layers({"a": {"b"}, "b": set()}) == [{"b"}, {"a"}]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_private_names_of_another(package):
    found = [
        f"{path.relative_to(ROOT)}: from {node.module} import {name.name}"
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] in PACKAGES)
        for name in node.names
        if name.name.startswith("_") and not (path.parent / f"{name.name}.py").exists()
    ]
    assert found == []


# Names with an underscore that tests may read: public despite it, or of libraries without a public alternative.
LIBRARIES = {
    "os._exit", "REGISTRY._collector_to_names", "one._labelnames", "family._labelnames", "lent._accept", "http.cookies._unquote", "_meta", "_replace", "_asdict", "_fields",
}  # fmt: skip
# Files whose tests may still read private names of Muster. This list may only shrink.
NOT_YET = {
    "tests/process/agent/test_report.py": "muster.report is measured from within",
    "tests/process/client/test_interruptible.py": "a lock of httpx's, which only the client's own connection leads to",
}
PATCHES = ("setattr", "delattr", "patch", "object")


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def private_names(tree: ast.AST) -> list[str]:
    """Names with a leading underscore that a test reads, imports or patches and that are not its own."""
    found = []
    for node in ast.walk(tree):
        match node:
            case (
                ast.Attribute(value=ast.Name(id="self" | "cls"))
                | ast.Attribute(value=ast.Call(func=ast.Name(id="super")))
            ):
                continue
            case ast.Attribute(attr=name) if is_private(name) and not {name, ast.unparse(node)} & LIBRARIES:
                found.append(ast.unparse(node))
            case ast.ImportFrom(module=module, names=names):
                found += [f"{module}.{one.name}" for one in names if is_private(f"{module}.{one.name}")]
            case ast.Call(func=ast.Attribute(attr=act), args=[where, ast.Constant(value=str(name)), *_]) if (
                act in PATCHES
            ):
                if is_private(name) and f"{ast.unparse(where)}.{name}" not in LIBRARIES:
                    found.append(f"{ast.unparse(where)}.{name}")
            case ast.Call(func=ast.Attribute(attr=act), args=[ast.Constant(value=str(name)), *_]) if act in PATCHES:
                found += [name] if is_private(name) else []
    return found


def test_tests_read_no_private_names():
    """A test of private names breaks with every refactoring and proves nothing about the public interface."""
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not any(str(path.relative_to(ROOT)).startswith(left) for left in NOT_YET)
        for name in private_names(ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize("left", NOT_YET)
def test_every_exception_for_private_names_is_still_needed(left):
    files = [ROOT / left] if left.endswith(".py") else sorted((ROOT / left).rglob("*.py"))
    assert any(private_names(ast.parse(path.read_text())) for path in files), (
        f"{left} reads none any more: strike it out"
    )


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("storage._refused.clear()", True),
        ("cluster.api._client.get()", True),
        ("made[0]._rows", True),
        ("from jobs.logs.search import _scan", True),
        ("from muster._report import checkpoints", True),
        ("monkeypatch.setattr(reading, '_kept', {})", True),
        ("monkeypatch.setattr('workspaces.services._register', fail)", True),
        ("self._rows = cls._made = Job._meta.fields", False),
        ("super()._refuse()", False),
        ("os._exit(0)", False),
        ("monkeypatch.setattr(Limits, '__call__', lambda: 0)", False),
    ],
)
def test_a_private_name_is_found(text, is_found):
    assert bool(private_names(ast.parse(text))) is is_found
