"""The corpus of failing jobs is readable and covers every kind, and an invalid label is refused."""

import re

import pytest

from bench.verdicts.cases import KINDS, BadLabel, corpus, header, label_of

ALL = corpus()


def test_the_corpus_has_enough_cases_of_ranks_and_of_the_cluster():
    assert len(ALL) >= 64
    assert sum(not case.is_of_cluster for case in ALL) >= 52
    assert sum(case.is_of_cluster for case in ALL) >= 12


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_case_that_allows_no_other_kind(kind):
    assert [case.name for case in ALL if case.label.kinds == (kind,)], f"no case is {kind} and nothing else"


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_a_label_names_a_rank_unless_no_rank_failed(case):
    is_without_rank = case.is_of_cluster or case.label.kinds == ("deadline",)
    assert bool(case.label.ranks) != is_without_rank
    assert {one.replica for one in (*case.pods, *case.events)} <= {"worker-0", "worker-1"}


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_no_label_forbids_its_own_headline(case):
    assert not [pattern for pattern in case.label.without if re.search(pattern, case.label.headline)]


def test_most_labels_allow_one_kind_only():
    several = [case.name for case in ALL if len(case.label.kinds) > 1]
    assert len(several) <= len(ALL) / 10, several


LABEL = {"kind": "data", "rank": 2, "headline": "EOFError"}


@pytest.mark.parametrize(
    "change, words",
    [
        ({"kind": "daata"}, "kind 'daata' is none of"),
        ({"rank": 4}, "rank 4 is none of 0, 1, 2, 3"),
        ({"replica": "worker-2"}, "replica 'worker-2' is none of"),
        ({"certainty": "certain"}, "certainty 'certain' is none of"),
        ({"headlines": "x"}, "headlines is unknown here"),
        ({"headline": 3}, "headline 3 is no text"),
        ({"headline": ""}, "headline or matches is missing"),
        ({"without": ["%|"]}, "would forbid every headline"),
    ],
)
def test_an_invalid_label_is_refused_with_the_name_of_its_field(change, words):
    with pytest.raises(BadLabel, match=f"^some: .*{re.escape(words)}"):
        label_of({**LABEL, **change}, case="some")


def test_a_label_without_a_kind_is_refused():
    with pytest.raises(BadLabel, match="some: kind is missing"):
        label_of({"headline": "EOFError"}, case="some")


@pytest.mark.parametrize(
    "text", ["print(1)\n", "# /// label\n# kind = 'data'\n", 2 * "# /// label\n# kind = 'data'\n# ///\n"]
)
def test_a_script_must_have_exactly_one_label(text):
    with pytest.raises(BadLabel, match="there has to be one"):
        header(text, case="some")


def test_a_header_is_toml_in_comment_lines():
    text = '"""Doc."""\n# /// label\n# kind = "disk"\n#\n# [job]\n# arguments = ["a"]\n# ///\nimport os\n'
    assert header(text, case="some") == {"kind": "disk", "job": {"arguments": ["a"]}}
