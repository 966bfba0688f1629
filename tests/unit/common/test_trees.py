"""Folders filled by jobs are removed completely, and nothing outside them is touched."""

import os

import pytest

from common.machine import trees

DEEP = 3000  # more levels than Python's recursion limit or the limit of open descriptors


def nest(folder, levels):
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


@pytest.mark.parametrize("levels", [0, 5, DEEP])
def test_a_folder_of_any_depth_is_removed_and_the_target_of_a_link_stays(tmp_path, levels):
    outside, folder = tmp_path / "outside", tmp_path / "job"
    outside.mkdir()
    (outside / "kept").write_text("x")
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    nest(folder, levels)
    trees.remove(folder)
    assert not folder.exists()
    assert (outside / "kept").read_text() == "x"


def test_removing_a_missing_folder_is_no_error(tmp_path):
    trees.remove(tmp_path / "never")
