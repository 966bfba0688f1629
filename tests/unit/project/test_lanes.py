"""Levels of tests as lanes: all levels run, the slowest first; failures are reported; a resumed run skips passed lanes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import lanes

ROOT = Path(__file__).resolve().parents[3]
CONFTEST = "def pytest_addoption(parser):\n    parser.addoption('--long')\n"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with three levels of tests, one of which fails."""
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    monkeypatch.setattr(lanes, "ROOT", tmp_path)
    monkeypatch.setattr(lanes, "ARTIFACTS", tmp_path / "artifacts")
    monkeypatch.setattr(lanes, "DURATIONS", tmp_path / "artifacts/durations.json")
    monkeypatch.setattr(lanes, "PASSED", tmp_path / "artifacts/passed.json")
    monkeypatch.setattr(lanes, "LANES", {"slow": 50, "quick": 10, "wrong": 5})
    monkeypatch.setattr(lanes, "commit", lambda: "abc")
    for name in lanes.LANES:
        folder = tmp_path / "tests" / name
        folder.mkdir(parents=True)
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / f"test_{name}.py").write_text(f"def test_it():\n    assert {name != 'wrong'}, 'a reason'\n")
    return tmp_path


def test_every_level_is_a_lane():
    levels = {path.parts[-len(path.parts) + len(ROOT.parts) + 1] for path in (ROOT / "tests").rglob("test_*.py")}
    assert levels == set(lanes.LANES)


def test_the_slowest_lane_of_the_last_run_starts_first():
    assert lanes.slowest_first(["unit", "db", "browser"], {}) == ["db", "browser", "unit"]
    assert lanes.slowest_first(["unit", "db"], {"unit": 5000.0}) == ["unit", "db"]


def test_a_failing_lane_is_reported_with_its_output_and_the_others_pass(checkout, capsys):
    assert lanes.main(["--size", "all"]) == 1
    said = capsys.readouterr().out
    assert "== wrong failed" in said and "a reason" in said
    assert "2 of 3 lanes passed" in said and "Nothing was left out." in said
    assert set(json.loads((checkout / "artifacts/durations.json").read_text())) == set(lanes.LANES)


def test_resuming_runs_only_what_has_not_passed_at_this_commit(checkout, capsys, monkeypatch):
    lanes.main(["--size", "all"])
    (checkout / "tests/wrong/test_wrong.py").write_text("def test_it():\n    pass\n")
    capsys.readouterr()
    assert lanes.main(["--size", "all", "--resume"]) == 0
    assert "1 of 1 lanes passed" in capsys.readouterr().out
    monkeypatch.setattr(lanes, "commit", lambda: "another")
    assert lanes.main(["--size", "all", "--resume"]) == 0
    assert "3 of 3 lanes passed" in capsys.readouterr().out


def test_each_size_names_the_levels_it_leaves_out():
    for size, (_, apart, words) in lanes.SIZES.items():
        assert apart <= set(lanes.LANES)
        assert bool(words) == (size != "all")


def test_lanes_end_when_their_runner_is_interrupted(checkout):
    """No test process survives Ctrl-C."""
    test = checkout / "tests/slow/test_slow.py"
    test.write_text(
        "import os, time\n\ndef test_it():\n    open('pid', 'w').write(str(os.getpid()))\n    time.sleep(600)\n"
    )
    code = (
        "from pathlib import Path; from tests.support import lanes; root = Path.cwd();"
        "lanes.ROOT, lanes.ARTIFACTS, lanes.DURATIONS = root, root / 'artifacts', root / 'artifacts/d.json';"
        "lanes.run(['slow'], long='none')"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    runner = subprocess.Popen([sys.executable, "-c", code], cwd=checkout, env=env, stdout=subprocess.DEVNULL)
    pid = checkout / "pid"
    while not pid.exists() or not pid.read_text():
        assert runner.poll() is None
    runner.send_signal(signal.SIGINT)
    runner.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
