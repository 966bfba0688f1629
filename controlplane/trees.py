"""Removing a folder that somebody else filled. Knows no Django: bin/demo's supervisor asks too."""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path


def remove(folder: Path) -> None:
    """As much of it as can be removed, following no link and however deep it is.

    shutil needs a descriptor and a call for each level, and a job can nest thousands of folders; rm needs neither.
    """
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        subprocess.run(["rm", "-rf", "--", folder], stdin=subprocess.DEVNULL, capture_output=True, check=False)
