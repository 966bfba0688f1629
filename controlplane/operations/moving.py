"""muster-server move-files: copy what is still in the store of MUSTER_OLD_FILES to that of MUSTER_FILES, while jobs run."""

from collections.abc import Callable, Iterator

from django.core.files.base import File
from django.core.files.storage import default_storage

from common.files import file_deletion
from common.files.file_store import MovingStorage
from jobs.logs import storage
from workspaces import files

SAY_EVERY = 1000


class NothingToMove(Exception):
    """Why there is nothing to move, and what to set."""


def move(*, say: Callable[[str], None]) -> Iterator[str]:
    """Copy every file that a row names and the new store has not, until a pass finds none; yields what was done.

    May be killed and run again. Raises NothingToMove, and OSError where a store fails. The old store is left as it is.
    """
    store = default_storage
    if not isinstance(store, MovingStorage):
        raise NothingToMove(
            "MUSTER_OLD_FILES is not set: set MUSTER_FILES to where files go and MUSTER_OLD_FILES to where they are "
            "(`folder` or an address), for every process, and restart them"
        )
    with file_deletion.paused(say=say):
        while found := _pass(store, say):
            yield f"{found} files moved"
    yield "nothing is left to move: unset MUSTER_OLD_FILES, restart every process, and then delete the old files"


def _pass(store: MovingStorage, say: Callable[[str], None]) -> int:
    count = 0
    for name in {*storage.named(), *files.named()}:
        if store.new.exists(name) or not store.old.exists(name):
            continue
        with store.old.open(name, "rb") as file:
            store.new.save(name, File(file, name=name))
        count += 1
        if count % SAY_EVERY == 0:
            say(f"{count} files so far")
    return count
