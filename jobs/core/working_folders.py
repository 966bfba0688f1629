"""What an agent says of the files that its job wrote into the working folder, as a note of the job's history. Pure.

Locally the next attempt continues with them; in a pod they are gone with it.
"""

from common.errors import InvalidInput, Problem
from common.text import format_bytes

from .batch import Item, clean

ABOUT = "Working folder: "  # begins the note, which is written for the first replica that has something to say
MOST_NAMES = 5
MOST_CHARACTERS = 200  # of a path


def note(item: Item, *, replica: str) -> str:
    """Return the note about one replica ("worker-0") behind ABOUT. Raises InvalidInput naming what cannot be read."""
    about = next((name for name in ("carried", "lost") if name in item.fields), "")
    given = item.fields.get(about)
    if not isinstance(given, dict):
        raise InvalidInput(Problem("folder", None, "must have what was carried over or lost"))
    part = Item(f"folder.{about}", given)
    files, names = part.number("files"), _names(given.get("names"))
    words = f"{files} file{'' if files == 1 else 's'} ({format_bytes(part.number('bytes'))})"
    listed = ", ".join(names) + (f" and {files - len(names)} more" if files > len(names) else "")
    if about == "lost":
        kept = "What is written to muster.checkpoints() or to a volume is kept"
        are = "is" if files == 1 else "are"
        return f"{words} that {replica} wrote there {are} gone with its pod: {listed}. {kept}"
    left = part.optional("left", 0) or 0
    rest = f"; {left} more could not be moved and stay in the folder of that attempt" if left else ""
    return f"{replica} continues with {words} of attempt {part.number('attempt', 1)}: {listed}{rest}"


def _names(given: object) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise InvalidInput(Problem("folder.names", None, "must be a list of paths"))
    return [clean(one[:MOST_CHARACTERS]) for one in given[:MOST_NAMES]]
