"""The chart as helm renders it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rig import helm, programs
from tests.support.machine import need

EXAMPLES = sorted(path.stem for path in helm.EXAMPLES.glob("*.yaml"))
Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def render() -> Render:
    need(not programs.why_not(helm.SOURCES), programs.why_not(helm.SOURCES))

    def render(example: str, *words: str, namespace: str = "muster") -> list[dict[str, Any]]:
        """Return the objects of one of our examples, in the order in which helm prints them."""
        values = helm.EXAMPLES / f"{example}.yaml"
        text = helm.helm("template", "muster", str(helm.CHART), "--namespace", namespace, "-f", str(values), *words)
        return [one for one in yaml.safe_load_all(text) if one]

    return render


@pytest.fixture
def golden() -> Path:
    return Path(__file__).with_name("golden")
