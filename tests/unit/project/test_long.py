"""Which long tests run: none, all, or a part chosen by the commit hash. Each case runs pytest within pytest."""

import pytest

from tests.support.long import PARTS, part

pytest_plugins = ["pytester"]

FILE = """
import pytest

@pytest.mark.sample
def test_short(): pass

@pytest.mark.long
@pytest.mark.parametrize("number", range(120))
def test_long(number): pass

@pytest.mark.sampled
@pytest.mark.parametrize("number", range(12))
def test_sampled(number): pass

@pytest.mark.ci
def test_in_ci(): pass

@pytest.mark.full
def test_whole(): pass

def test_usual(): pass
"""
WITHOUT_LONG = """
import pytest

@pytest.mark.sample
def test_short(): pass
"""


@pytest.mark.parametrize(
    ("option", "passed"),
    [
        ([], {"short": 1, "long": 0, "sampled": 0, "in_ci": 0, "whole": 0, "usual": 1}),
        (["--long", "part"], {"short": 0, "long": 2, "sampled": 2, "in_ci": 1, "whole": 0, "usual": 1}),
        (["--long", "all"], {"short": 0, "long": 120, "sampled": 12, "in_ci": 1, "whole": 1, "usual": 1}),
    ],
)
def test_the_long_option_selects_the_tests(pytester, option, passed):
    pytester.makeini("[pytest]\nmarkers =\n    ci\n    full\n    long\n    sample\n    sampled")
    pytester.makepyfile(FILE)
    found = pytester.runpytest_inprocess("-v", "-p", "no:django", "-p", "tests.support.long", *option)
    words = found.outlines
    assert {name: sum(f"::test_{name}" in line for line in words) for name in passed} == passed
    left_out = 136 - sum(passed.values())
    assert any(f"{left_out} tests were left out" in line for line in words)


def test_a_sample_runs_in_files_whose_long_tests_do_not(pytester):
    pytester.makeini("[pytest]\nmarkers =\n    ci\n    full\n    long\n    sample\n    sampled")
    pytester.makepyfile(test_one=FILE, test_two=WITHOUT_LONG)
    found = pytester.runpytest_inprocess("-v", "-p", "no:django", "-p", "tests.support.long", "--long", "all")
    assert [line.split("::")[0] for line in found.outlines if "::test_short" in line] == ["test_two.py"]


@pytest.mark.parametrize("of", PARTS.values())
def test_the_parts_of_as_many_commits_cover_all_tests(of):
    chosen = [number for commit in range(of) for number in part(range(137), of=of, commit=f"{commit:040x}")]
    assert sorted(chosen) == list(range(137))
