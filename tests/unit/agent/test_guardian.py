"""What a guardian does about processes that are born while it looks for them."""

import pytest

from agent import linux
from agent.output import guardian


@pytest.mark.parametrize(
    ("case", "looks", "killed"),
    [
        ("nothing is there", [[], []], []),
        ("one was born during the first look, and its parent ended in it", [[], [7], [], []], [7]),
        ("a killed one had just forked", [[7], [8], [], []], [7, 8]),
        ("one that cannot be killed does not keep it for ever", [[7]] * guardian.ROUNDS, [7] * guardian.ROUNDS),
    ],
)
def test_it_goes_only_after_it_has_found_nothing_twice(monkeypatch, case, looks, killed):
    left, found = list(looks), list[int]()
    monkeypatch.setattr(linux, "marked", lambda marks: left.pop(0))
    monkeypatch.setattr(linux, "kill", found.extend)
    monkeypatch.setattr(guardian, "PAUSE_SECONDS", 0.0)
    guardian.end_all([b"MUSTER_MARK=1"])
    assert (found, left) == (killed, []), case
