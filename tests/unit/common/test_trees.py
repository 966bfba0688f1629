"""Folders that jobs filled are removed whole, and nothing beside them."""

import os

import pytest

from common import trees

DEEP = 3000  # more levels than Python calls, or descriptors, in one


def nest(folder, levels):
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


@pytest.mark.parametrize("levels", [0, 5, DEEP])
def test_a_folder_goes_however_deep_it_is_and_what_a_link_leads_to_stays(tmp_path, levels):
    outside, folder = tmp_path / "outside", tmp_path / "job"
    outside.mkdir()
    (outside / "kept").write_text("x")
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    nest(folder, levels)
    trees.remove(folder)
    assert not folder.exists()
    assert (outside / "kept").read_text() == "x"


def test_what_is_not_there_is_no_trouble(tmp_path):
    trees.remove(tmp_path / "never")
