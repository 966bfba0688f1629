"""The corpus of failing jobs, a tenth at a time; tests/unit/analysis judges what was recorded of them."""

import pytest

from bench.verdicts import score
from bench.verdicts.cases import corpus
from bench.verdicts.playing import play
from bench.verdicts.score import Played

# The whole corpus may be wrong in 5 %. Of some 14 cases that is none, so one is allowed here unless its verdict is sure.
WRONG_PERCENT = 10.0
PARTS = 10


@pytest.fixture(scope="module", params=range(PARTS))
def played(request, installation, scripted_folder) -> list[Played]:
    return play(
        installation, corpus()[request.param :: PARTS], scripts=scripted_folder, at_once=1, on_played=lambda _: None
    )


@pytest.mark.soak(guards=("jobs/analysis", "agent/output", "agent/ranks", "bench/verdicts", "requirements/dev.lock"))
@pytest.mark.parametrize("what", score.JUDGED)
def test_a_tenth_of_the_corpus_is_judged_correctly(played, what):
    wrong = [line for one in played if what in one.score.wrong for line in score.report(one)]
    assert score.wrong_percent(played, what) <= WRONG_PERCENT, "\n".join(wrong)
