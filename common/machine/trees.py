"""List and remove folders that other programs filled. Imports no Django: bin/demo's supervisor uses it too."""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path


def remove(folder: Path) -> None:
    """Remove as much of the folder as can be removed, following no link, however deep it is.

    shutil needs a descriptor and a call for each level, and a job can nest thousands of folders; rm needs neither.
    """
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        subprocess.run(["rm", "-rf", "--", folder], stdin=subprocess.DEVNULL, capture_output=True, check=False)


def folders(folder: Path) -> list[Path]:
    """Return the subfolders that are no links, sorted; none where the folder does not exist.

    pathlib's globs fail where a job made a link to a name that is too long.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []
