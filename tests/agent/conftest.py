from collections.abc import Iterator
from pathlib import Path

import pytest

from .bench import Bench
from .plane import Plane


@pytest.fixture
def bench(tmp_path: Path, pyz: Path, plane: Plane) -> Iterator[Bench]:
    bench = Bench(tmp_path, pyz=pyz, plane=plane)
    yield bench
    assert bench.close() == [], "processes outlived their agent"
