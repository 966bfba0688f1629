"""What changed between two trees: which files, and for text which lines, within bounds of work and size. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import NamedTuple

from .manifest import Entry

MAX_FILE_BYTES = 256 << 10  # larger files are only named
MAX_TOTAL_BYTES = 1 << 20  # of all line differences of one answer
MAX_CORE_LINES = 1200  # between what is alike at both ends; finding the least difference is quadratic
CONTEXT = 3


class Change(NamedTuple):
    before: Entry
    after: Entry
    lines: str | None  # a unified diff; None: not shown
    why: str = ""  # it is not shown

    @property
    def path(self) -> str:
        return self.after.path


@dataclass
class Difference:
    added: list[Entry] = field(default_factory=list)
    removed: list[Entry] = field(default_factory=list)
    changed: list[Change] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def difference(before: list[Entry], after: list[Entry], *, read: Callable[[str, Entry], bytes]) -> Difference:
    """`read` gives a file's content; its first argument is "before" or "after"."""
    old, new = ({entry.path: entry for entry in tree} for tree in (before, after))
    found = Difference(
        added=[entry for entry in after if entry.path not in old],
        removed=[entry for entry in before if entry.path not in new],
    )
    left = MAX_TOTAL_BYTES
    for entry in after:
        earlier = old.get(entry.path)
        if earlier is not None and earlier != entry:
            found.changed.append(_change(earlier, entry, read=read, left=left))
            left -= len(found.changed[-1].lines or "")
    return found


def unified(before: str, after: str) -> str:
    """The hunks of a unified diff, without its head. Equal lines at both ends are set aside first."""
    old, new = before.split("\n"), after.split("\n")
    begin = _alike(zip(old, new, strict=False))
    tail = _alike(zip(reversed(old[begin:]), reversed(new[begin:]), strict=False))
    skip = max(0, begin - CONTEXT)
    end = max(0, tail - CONTEXT)
    return "\n".join(_hunks(old[skip : len(old) - end], new[skip : len(new) - end], skip=skip))


def _change(before: Entry, after: Entry, *, read: Callable[[str, Entry], bytes], left: int) -> Change:
    if not (before.is_file and after.is_file):
        return Change(before, after, None, "a link is involved")
    if before.digest == after.digest:
        return Change(before, after, None, "only the execute bit changed")
    if max(before.size, after.size) > MAX_FILE_BYTES:
        return Change(before, after, None, f"larger than {MAX_FILE_BYTES >> 10} KiB")
    if left <= 0:
        return Change(before, after, None, "the answer is full")
    texts = [_text(read("before", before)), _text(read("after", after))]
    if texts[0] is None or texts[1] is None:
        return Change(before, after, None, "not text")
    return Change(before, after, unified(texts[0], texts[1]))


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _alike(pairs: Iterator[tuple[str, str]]) -> int:
    count = 0
    for one, other in pairs:
        if one != other:
            break
        count += 1
    return count


def _hunks(old: list[str], new: list[str], *, skip: int) -> Iterator[str]:
    for group in _groups(old, new):
        first, last = group[0], group[-1]
        yield f"@@ -{_span(first[1], last[2], skip)} +{_span(first[3], last[4], skip)} @@"
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[old_from:old_to])
            else:
                yield from (f"-{line}" for line in old[old_from:old_to])
                yield from (f"+{line}" for line in new[new_from:new_to])


def _groups(old: list[str], new: list[str]) -> list[list[tuple[str, int, int, int, int]]]:
    if max(len(old), len(new)) > MAX_CORE_LINES:
        return [[("replace", 0, len(old), 0, len(new))]]  # true, if not the least
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return [list(group) for group in matcher.get_grouped_opcodes(CONTEXT)]


def _span(begin: int, end: int, skip: int) -> str:
    length = end - begin
    return f"{begin + skip + (1 if length else 0)},{length}"
