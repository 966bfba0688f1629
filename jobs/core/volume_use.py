"""What an agent says of the volumes that its replica mounts. Pure."""

from collections.abc import Mapping

from volumes.use import Use

from .batch import Item

MOST = 20
MOST_TIME = 2**35


def read(item: Item) -> Mapping[str, Use]:
    """Return the uses by the volume's name. Raises InvalidInput for numbers that no row can hold."""
    given = item.fields.get("volumes")
    if not isinstance(given, dict):
        return {}
    found = {}
    for name, one in list(given.items())[:MOST]:
        if isinstance(one, dict):
            use = Item("volumes", one)
            found[str(name)] = Use(
                use.number("total"), use.number("free"), float(use.number("written_at", most=MOST_TIME))
            )
    return found
