"""Which tests run in which size, and which soak tests a change makes stale. Each case runs pytest within pytest."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.support import keys, soak

pytest_plugins = ["pytester"]

FILE = """
import pytest

@pytest.mark.ci
def test_in_ci(): pass

@pytest.mark.full
def test_whole(): pass

@pytest.mark.soak(guards=["jobs/core/lease.py"])
@pytest.mark.parametrize("number", range(3))
def test_race(number): pass

@pytest.mark.soak(guards=["jobs/core/lease.py"], repeats=True)
def test_again(): pass

@pytest.mark.ci(guards=["jobs/core/lease.py"])
def test_costly(): pass

@pytest.mark.parametrize("case", [1, pytest.param(2, marks=pytest.mark.full)])
def test_usual(case): pass
"""


@pytest.fixture(autouse=True)
def ledger(tmp_path, monkeypatch):
    """A ledger of this test's own, and no change since the main branch."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(soak, "changed", frozenset)
    monkeypatch.setattr(soak, "ROOT", tmp_path.parent.parent.parent.parent)
    monkeypatch.setattr(keys, "is_clean", lambda: True)
    return tmp_path / "muster/soak.json"


@pytest.fixture
def run(pytester, monkeypatch):
    pytester.makepyfile(test_it=FILE)
    # pytester's file lies in no folder of the project.
    monkeypatch.setattr(soak, "guards", lambda item: ("jobs/core/lease.py",))

    def run(*words: str) -> tuple[dict[str, int], str]:
        found = pytester.runpytest_inprocess("-v", "-p", "no:django", "-p", "tests.support.sizes", *words)
        ran = [line for line in found.outlines if "PASSED" in line]
        names = ("in_ci", "whole", "race", "usual", "costly", "again")
        return {name: sum(f"::test_{name}" in line for line in ran) for name in names}, found.stdout.str()

    return run


@pytest.mark.parametrize(
    ("words", "expected", "left_out"),
    [
        ([], {"in_ci": 0, "whole": 0, "race": 0, "usual": 1}, "2 ci, 2 full, 4 soak"),
        (["--size", "ci"], {"in_ci": 1, "whole": 0, "race": 0, "usual": 1}, "2 full, 4 soak"),
        (["--size", "all"], {"in_ci": 1, "whole": 1, "race": 0, "usual": 2}, "4 soak"),
        (["--size", "soak"], {"in_ci": 0, "whole": 0, "race": 3, "usual": 0}, "2 ci, 2 full"),
    ],
)
def test_each_size_runs_its_tests_and_says_what_it_left_out(run, words, expected, left_out):
    ran, said = run(*words)
    assert ran == {**expected, "costly": int(words[-1:] in (["ci"], ["all"])), "again": int(words[-1:] == ["soak"])}
    assert f"{left_out}\n" in said


def test_whoever_names_a_test_gets_it(run):
    ran, _ = run("test_it.py::test_whole", "test_it.py::test_race")
    assert (ran["whole"], ran["race"]) == (1, 3)


def test_a_soak_run_goes_on_where_the_last_one_stopped(run, ledger):
    assert run("--size", "soak", "-k", "race and (0 or 1)")[0]["race"] == 2
    assert len(json.loads(ledger.read_text())) == 2
    assert run("--size", "soak")[0]["race"] == 1
    assert run("--size", "soak")[0]["race"] == 0
    assert run("--size", "soak", "--fresh")[0]["race"] == 3


def test_ci_runs_a_costly_test_again_where_what_it_guards_was_changed(run, ledger):
    assert run("--size", "ci")[0]["costly"] == 1
    ran, said = run("--size", "ci")
    assert ran["costly"] == 0 and ran["in_ci"] == 1
    assert "left out, since what it guards is as it was: test_costly, passed at " in said
    assert run("--size", "all")[0]["costly"] == run("--size", "ci", "--fresh")[0]["costly"] == 1
    known = json.loads(ledger.read_text())
    for one in known.values():
        one["key"] = "of before the change"
    ledger.write_text(json.dumps(known))
    assert run("--size", "ci")[0]["costly"] == 1


def test_the_full_run_runs_what_a_change_made_stale_and_says_how_old_the_others_are(run, ledger):
    run("--size", "soak", "-k", "race and (0 or 1)")
    known = json.loads(ledger.read_text())
    stale, old = sorted(known)
    known[stale]["key"] = "of before the change"
    known[old]["at"] = (datetime.now(UTC) - timedelta(days=12)).isoformat()
    ledger.write_text(json.dumps(known))
    ran, said = run("--size", "all")
    assert ran["race"] == 1
    assert (
        "soak: 1 of 4 run, since what they guard was changed; 1 others passed here 12 to 12 days ago; 2 never ran here"
        in said
    )


def test_a_test_that_never_ran_here_is_stale_if_the_change_touched_what_it_guards(run, monkeypatch):
    monkeypatch.setattr(soak, "changed", lambda: frozenset({"jobs/core/lease.py"}))
    ran, _ = run("--size", "all")
    assert (ran["race"], ran["again"]) == (3, 0), "a repetition is for the size soak"


def test_nothing_is_noted_of_a_checkout_with_changes(run, ledger, monkeypatch):
    monkeypatch.setattr(keys, "is_clean", lambda: False)
    assert run("--size", "soak")[0]["race"] == 3
    assert not ledger.exists()


def test_guards_that_name_no_file_are_a_mistake():
    with pytest.raises(AssertionError, match="names jobs/nowhere"):
        soak.files(["jobs/nowhere"])
    assert soak.files(["jobs/core/lease.py", "queues/resources.py"]) == ["jobs/core/lease.py", "queues/resources.py"]
