"""Ranks that take steps without having met the others, as a note of the job's history. Pure.

Whether they should have met only their owner knows: several trials side by side are such ranks, too.
"""

from common.errors import InvalidInput, Problem

from .batch import Item

ABOUT = "Ranks train alone: "
MOST_NAMED = 8
_HIGHEST = 2**31 - 1


def read(item: Item) -> tuple[int, ...]:
    """Return the ranks that an item names. Raises InvalidInput."""
    ranks = item.fields.get("ranks")
    if (
        not isinstance(ranks, list)
        or not ranks
        or not all(type(one) is int and 0 <= one <= _HIGHEST for one in ranks[:MOST_NAMED])
    ):
        raise InvalidInput(Problem("alone.ranks", None, "must be a list of ranks"))
    return tuple(ranks)


def note(ranks: tuple[int, ...], *, replica: str) -> str:
    named = ", ".join(map(str, ranks[:MOST_NAMED])) + (" and others" if len(ranks) > MOST_NAMED else "")
    who = (
        f"rank {named} of {replica} takes steps, but has"
        if len(ranks) == 1
        else f"ranks {named} of {replica} take steps, but have"
    )
    return (
        f"{who} not joined a process group, so each seems to train by itself. If that is not wanted, call "
        'torch.distributed.init_process_group(), or tell the library that there are several (Lightning: strategy="ddp")'
    )
