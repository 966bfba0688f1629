"""Levels of tests as lanes: all levels run, the slowest first; failures are reported; what has passed is not run again."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import keys, lanes

ROOT = Path(__file__).resolve().parents[3]
CONFTEST = "def pytest_addoption(parser):\n    parser.addoption('--size')\n    parser.addoption('--fresh', action='store_true')\n"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with three levels of tests, one of which fails."""
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    monkeypatch.setattr(lanes, "ROOT", tmp_path)
    monkeypatch.setattr(lanes, "ARTIFACTS", tmp_path / "artifacts")
    monkeypatch.setattr(lanes, "DURATIONS", tmp_path / "artifacts/durations.json")
    monkeypatch.setattr(lanes, "LANES", {"slow": 50, "quick": 10, "wrong": 5})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(keys, "is_clean", lambda: True)
    monkeypatch.setattr(keys, "key", lambda lane: (tmp_path / f"tests/{lane}/test_{lane}.py").read_text())
    for name in lanes.LANES:
        folder = tmp_path / "tests" / name
        folder.mkdir(parents=True)
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / f"test_{name}.py").write_text(f"def test_it():\n    assert {name != 'wrong'}, 'a reason'\n")
    return tmp_path


def test_every_test_is_in_one_lane():
    for path in (ROOT / "tests").rglob("test_*.py"):
        place = path.relative_to(ROOT / "tests").as_posix()
        assert len([name for name in lanes.LANES if place.startswith(f"{name}/")]) == 1, place


def test_the_slowest_lane_of_the_last_run_starts_first():
    assert lanes.slowest_first(["unit", "db", "system/image"], {}) == ["system/image", "db", "unit"]
    assert lanes.slowest_first(["unit", "db"], {"unit": 5000.0}) == ["unit", "db"]


def test_a_failing_lane_is_reported_with_its_output_and_the_others_pass(checkout, capsys):
    assert lanes.main(["--size", "all"]) == 1
    said = capsys.readouterr().out
    assert "== wrong failed" in said and "a reason" in said
    assert "2 of 3 lanes passed" in said and "Left out: soak tests" in said
    assert set(json.loads((checkout / "artifacts/durations.json").read_text())) == set(lanes.LANES)


def test_only_what_changed_or_has_not_passed_is_run_again(checkout, capsys):
    lanes.main(["--size", "all"])
    (checkout / "tests/wrong/test_wrong.py").write_text("def test_it():\n    pass\n")
    capsys.readouterr()
    assert lanes.main(["--size", "all"]) == 0
    said = capsys.readouterr().out
    assert "1 of 1 lanes passed" in said and "2 taken from stamps" in said
    assert "quick            not run again: passed at " in said
    (checkout / "tests/quick/test_quick.py").write_text("def test_it():\n    assert True\n")
    assert lanes.main(["--size", "all"]) == 0
    assert "1 of 1 lanes passed" in capsys.readouterr().out
    assert lanes.main(["--size", "all", "--fresh"]) == 0
    assert "3 of 3 lanes passed" in capsys.readouterr().out


def test_the_full_run_runs_what_ci_took_from_a_stamp(checkout, capsys):
    (checkout / "tests/wrong/test_wrong.py").write_text("def test_it():\n    pass\n")
    lanes.main(["--size", "all"])
    lanes.main(["--size", "ci"])
    assert "3 taken from stamps" in capsys.readouterr().out
    lanes.main(["--size", "all"])
    assert "3 of 3 lanes passed" in capsys.readouterr().out


def test_a_checkout_with_changes_takes_and_leaves_no_stamp(checkout, capsys, monkeypatch):
    monkeypatch.setattr(keys, "is_clean", lambda: False)
    lanes.main(["--size", "all"])
    capsys.readouterr()
    lanes.main(["--size", "all"])
    assert "2 of 3 lanes passed" in capsys.readouterr().out


def test_each_size_names_the_levels_it_leaves_out():
    for apart, words in lanes.SIZES.values():
        assert apart <= set(lanes.LANES) and words


def test_lanes_end_when_their_runner_is_interrupted(checkout):
    """No test process survives Ctrl-C."""
    test = checkout / "tests/slow/test_slow.py"
    test.write_text(
        "import os, time\n\ndef test_it():\n    open('pid', 'w').write(str(os.getpid()))\n    time.sleep(600)\n"
    )
    code = (
        "from pathlib import Path; from tests.support import lanes; root = Path.cwd();"
        "lanes.ROOT, lanes.ARTIFACTS, lanes.DURATIONS = root, root / 'artifacts', root / 'artifacts/d.json';"
        "lanes.run(['slow'], size='quick')"
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
