"""Exit codes and signals in words, defined in one place."""

import pytest

from jobs.core import exits


@pytest.mark.parametrize(
    ("code", "signal", "ending", "brief"),
    [
        (0, None, "exited with code 0", ""),
        (1, None, "exited with code 1", "exit 1"),
        (200, None, "exited with code 200", "exit 200"),
        (137, None, "was ended by SIGKILL (exit code 137)", "SIGKILL"),
        (None, 9, "was ended by SIGKILL (9)", "SIGKILL"),
        (None, 44, "was ended by signal 44", "signal 44"),
        (None, None, "ended without an exit code", ""),
    ],
)
def test_an_exit_status_is_described_in_a_long_and_a_brief_form(code, signal, ending, brief):
    assert (exits.ending(code, signal), exits.brief(code, signal)) == (ending, brief)


def test_the_long_form_adds_the_usual_meaning_of_an_exit_status():
    assert exits.explained(None, 11) == "was ended by SIGSEGV (11): a crash in native code"
    assert exits.explained(127, None) == "exited with code 127: the command was not found"
    assert exits.explained(1, None) == "exited with code 1"
