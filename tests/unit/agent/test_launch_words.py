"""Why a command cannot start where it should, in words."""

import os

from agent import launch


def test_a_working_directory_that_may_not_be_entered_is_told_from_one_that_is_not_there(tmp_path, monkeypatch):
    closed = str(tmp_path / "closed")
    os.mkdir(closed)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != closed)
    words = launch.no_folder(closed, closed)
    assert words.startswith(f"cannot start in {closed}; the job runs as ")
    assert f"which may not enter {closed}" in words and words.endswith("or correct working_dir")
    assert (
        launch.no_folder("nope", str(tmp_path / "nope")) == "no such folder in the workspace: nope; correct working_dir"
    )
