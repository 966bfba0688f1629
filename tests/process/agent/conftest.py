from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.agent.bench import Bench
from tests.support.fake_control_plane import FakeControlPlane


@pytest.fixture
def bench(tmp_path: Path, pyz: Path, control_plane: FakeControlPlane) -> Iterator[Bench]:
    bench = Bench(tmp_path, pyz=pyz, control_plane=control_plane)
    yield bench
    assert bench.close() == [], "processes outlived their agent"
