"""What of the rooms no import contract says: few of them, in few layers, and none reaches into another's private names."""

import ast
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("accounts", "agent", "common", "controlplane", "embedded", "jobs", "queues", "rig", "workspaces")


@cache
def imports() -> dict[str, set[str]]:
    """The children of `jobs`, and which of the others each imports."""
    graph = grimp.build_graph("jobs")
    rooms = graph.find_children("jobs")
    return {
        room: {
            other
            for other in rooms - {room}
            if graph.direct_import_exists(importer=room, imported=other, as_packages=True)
        }
        for room in rooms
    }


@cache
def layer(room: str) -> int:
    return 1 + max((layer(other) for other in imports()[room]), default=0)


def test_jobs_is_a_few_rooms_in_a_few_layers():
    assert len(imports()) <= 22
    assert max(map(layer, imports())) <= 9  # a cycle would not come to an end here


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_another_ones_private_names(package):
    found = [
        f"{path.relative_to(ROOT)}: from {node.module} import {name.name}"
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] in PACKAGES)
        for name in node.names
        if name.name.startswith("_") and not (path.parent / f"{name.name}.py").exists()
    ]
    assert found == []
