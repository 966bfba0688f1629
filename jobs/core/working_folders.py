"""What an agent says of the files that its job wrote into the working folder, as a note of the job's history. Pure.

Locally the next attempt continues with them; in a pod they are gone with it.
"""

from dataclasses import dataclass, replace

from common.errors import InvalidInput, Problem
from common.text import format_bytes

from .batch import Item, clean

ABOUT = "Working folder: "  # begins the note, which is written for the first replica that has something to say
MOST_NAMES = 5
MOST_CHARACTERS = 200  # of a path


@dataclass(frozen=True)
class Files:
    """What a replica wrote into its working folder. Without `attempt` it is lost."""

    count: int
    size: int  # bytes
    names: list[str]  # some of them
    attempt: int | None = None  # that wrote what this one continues with
    left: int = 0  # files that could not be moved


def read(item: Item) -> Files:
    """Return what an item says. Raises InvalidInput naming what cannot be read."""
    about = next((name for name in ("carried", "lost") if name in item.fields), "")
    given = item.fields.get(about)
    if not isinstance(given, dict):
        raise InvalidInput(Problem("folder", None, "must have what was carried over or lost"))
    part = Item(f"folder.{about}", given)
    files = Files(part.number("files"), part.number("bytes"), _names(given.get("names")))
    if about == "lost":
        return files
    return replace(files, attempt=part.number("attempt", 1), left=part.optional("left", 0) or 0)


def note(files: Files, *, replica: str) -> str:
    """Return the note about one replica ("worker-0"), without ABOUT."""
    words = f"{files.count} file{'' if files.count == 1 else 's'} ({format_bytes(files.size)})"
    more = files.count - len(files.names)
    listed = ", ".join(files.names) + (f" and {more} more" if more > 0 else "")
    if files.attempt is None:
        kept = "What is written to muster.checkpoints() or to a volume is kept"
        are = "is" if files.count == 1 else "are"
        return f"{words} that {replica} wrote there {are} gone with its pod: {listed}. {kept}"
    if not files.count:
        return f"{replica} begins without the {files.left} files of attempt {files.attempt}, which could not be moved and stay in its folder"
    rest = f"; {files.left} more could not be moved and stay in the folder of that attempt" if files.left else ""
    return f"{replica} continues with {words} of attempt {files.attempt}: {listed}{rest}"


def _names(given: object) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise InvalidInput(Problem("folder.names", None, "must be a list of paths"))
    return [clean(one[:MOST_CHARACTERS]) for one in given[:MOST_NAMES]]
