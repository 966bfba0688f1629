"""Tests that a machine cannot run are skipped with a reason; in CI such a skip is a failure, so that no test is skipped
unnoticed. A GPU is the exception: CI has none.
"""

import os
import shutil

import pytest


def need(has_it: bool, reason: str) -> None:
    if has_it:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must be able to do this: {reason}")
    pytest.skip(reason)


def need_chromium() -> str:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    need(bool(path), "Chromium is not installed; apt-get install chromium")
    return path
