from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.build import build

from .bench import Bench
from .plane import Plane


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("agent") / "agent.pyz")


@pytest.fixture
def plane() -> Iterator[Plane]:
    plane = Plane()
    plane.up()
    yield plane
    plane.down()


@pytest.fixture
def bench(tmp_path: Path, pyz: Path, plane: Plane) -> Iterator[Bench]:
    bench = Bench(tmp_path, pyz=pyz, plane=plane)
    yield bench
    assert bench.close() == [], "processes outlived their agent"
