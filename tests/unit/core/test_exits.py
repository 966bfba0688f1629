"""Exit codes and signals in words, once for everybody."""

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
def test_an_end_has_one_translation(code, signal, ending, brief):
    assert (exits.ending(code, signal), exits.brief(code, signal)) == (ending, brief)


def test_what_an_end_usually_means_is_said_where_there_is_room():
    assert exits.explained(None, 11) == "was ended by SIGSEGV (11): a crash in native code"
    assert exits.explained(127, None) == "exited with code 127: the command was not found"
    assert exits.explained(1, None) == "exited with code 1"
