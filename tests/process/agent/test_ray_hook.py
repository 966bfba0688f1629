"""What `ray.train.report` is given, in a process that Ray's hook has run in, are metrics of its rank."""

import sys

import pytest

from tests.process.agent.bench import Bench

pytestmark = pytest.mark.ci

SCRIPT = """
from _muster_agent.frameworks import ray_hook
ray_hook.setup()
from ray.train import report
try:
    report({"loss": 0.5, "epoch": 3, "note": "text", "is_best": True})
except Exception as error:
    print("outside of a session:", type(error).__name__)
"""
TOLD = {"framework": "plain", "is_rank": True, "first_rank": 4, "index": 3}


@pytest.mark.parametrize(
    ("env", "points"), [({}, [[3, {"ray/loss": 0.5, "ray/epoch": 3}]]), ({"MUSTER_IGNORE_PRINTED": "1"}, [])]
)
def test_its_numbers_are_series_of_the_rank(bench: Bench, env: dict, points: list) -> None:
    received = bench.run([sys.executable, "train.py"], files={"train.py": SCRIPT}, env={"RANK": "7", **env}, **TOLD)
    assert [line for line in received.texts(7) if line.startswith("outside")], received.texts(7)
    found = [point[1:] for item in received.kind("metrics", rank=7) for point in item["points"]]
    assert found == points
