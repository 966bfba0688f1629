"""Compare two trees: which files changed, and for text which lines, within limits on work and size. Pure.

Every limit is a count and not a time, so that the same two trees give the same answer on every machine. What exceeds
one is explained in `why`; the file itself is always listed.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import accumulate
from typing import NamedTuple

from .manifest import Entry

MAX_FILE_BYTES = 256 << 10  # larger files are only listed
MAX_READ_FILES = 200  # in one answer: each is looked up, opened and unpacked twice
MAX_READ_BYTES = 4 << 20
MAX_TOTAL_BYTES = 1 << 20  # of all line differences in one answer
MAX_TOTAL_LINES = 20_000
MAX_CORE_LINES = 1200  # between the equal lines at both ends; finding the smallest difference is at least quadratic
# Line comparisons; about ten million run per second. Lines that occur often make difflib cubic: 60 small files took 11
# s.
MAX_COMPARISONS = 5_000_000
MAX_FILE_COMPARISONS = 1_000_000  # so that one expensive file does not use up the others' share
CONTEXT = 3

TOO_LARGE = f"larger than {MAX_FILE_BYTES >> 10} KiB"
TOO_MANY = f"not compared: the lines of at most {MAX_READ_FILES} files and {MAX_READ_BYTES >> 20} MiB are; look at this file in both"
TOO_COSTLY = "not compared: lines that repeat this often take too long; look at this file in both"
FULL = f"the answer is full: it shows at most {MAX_TOTAL_LINES:,} lines and {MAX_TOTAL_BYTES >> 20} MiB"

Pair = tuple[Entry, Entry]  # the entries of a path, before and after


class Change(NamedTuple):
    before: Entry
    after: Entry
    lines: str | None  # a unified diff; None: not shown
    why: str = ""  # reason that no lines are shown

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


class TooCostly(Exception):
    """Comparing these lines takes more work than is left."""


@dataclass
class Budget:
    """What is left of one answer's limits."""

    comparisons: int = MAX_COMPARISONS
    file_comparisons: int = MAX_FILE_COMPARISONS
    lines: int = MAX_TOTAL_LINES
    size: int = MAX_TOTAL_BYTES

    def compare(self, count: int) -> None:
        """Use up comparisons.

        Called before the work: what is refused was not done, and leaves the budget for others.
        """
        if count > min(self.comparisons, self.file_comparisons):
            raise TooCostly
        self.comparisons -= count
        self.file_comparisons -= count

    def show(self, text: str) -> bool:
        """Return whether there is room for this text; if not, the answer is full."""
        lines = text.count("\n") + 1
        is_room = lines <= self.lines and len(text) <= self.size
        self.lines = self.lines - lines if is_room else 0
        self.size -= len(text) if is_room else 0
        return is_room


def difference(before: list[Entry], after: list[Entry], *, read: Callable[[str, Entry], bytes]) -> Difference:
    """Compare two trees; `read` returns the content of files that `to_read` lists.

    Its first argument is "before" or "after".
    """
    old, new = ({entry.path: entry for entry in tree} for tree in (before, after))
    pairs = _changed(before, after)
    readable = {entry.path for _, entry in _to_read(pairs)}
    budget = Budget()
    return Difference(
        added=[entry for entry in after if entry.path not in old],
        removed=[entry for entry in before if entry.path not in new],
        changed=[_change(pair, readable=readable, read=read, budget=budget) for pair in pairs],
    )


def to_read(before: list[Entry], after: list[Entry]) -> list[Pair]:
    """Return the changed files whose lines are compared, so that a reader can look them all up at once."""
    return _to_read(_changed(before, after))


def unified(before: str, after: str, budget: Budget | None = None) -> str:
    """Return the hunks of a unified diff, without its header. Raises TooCostly.

    Equal lines at both ends are set aside first.
    """
    old, new = before.split("\n"), after.split("\n")
    begin = _alike(zip(old, new, strict=False))
    tail = _alike(zip(reversed(old[begin:]), reversed(new[begin:]), strict=False))
    skip = max(0, begin - CONTEXT)
    end = max(0, tail - CONTEXT)
    core = old[skip : len(old) - end], new[skip : len(new) - end]
    return "\n".join(_hunks(*core, skip=skip, budget=budget or Budget()))


def _changed(before: list[Entry], after: list[Entry]) -> list[Pair]:
    old = {entry.path: entry for entry in before}
    pairs = ((old.get(entry.path), entry) for entry in after)
    return [(earlier, entry) for earlier, entry in pairs if earlier is not None and earlier != entry]


def _to_read(pairs: list[Pair]) -> list[Pair]:
    found: list[Pair] = []
    size = 0
    for before, after in pairs:
        if not _objection(before, after) and len(found) < MAX_READ_FILES:
            size += before.size + after.size
            if size > MAX_READ_BYTES:
                break
            found.append((before, after))
    return found


def _objection(before: Entry, after: Entry) -> str:
    """Return why the lines of these two cannot be compared, judging by their entries; "" if they can."""
    if not (before.is_file and after.is_file):
        return "a link is involved"
    if before.digest == after.digest:
        return "only the execute bit changed"
    return TOO_LARGE if max(before.size, after.size) > MAX_FILE_BYTES else ""


def _change(pair: Pair, *, readable: set[str], read: Callable[[str, Entry], bytes], budget: Budget) -> Change:
    before, after = pair
    if why := _objection(before, after) or ("" if after.path in readable else TOO_MANY):
        return Change(before, after, None, why)
    if not budget.lines:
        return Change(before, after, None, FULL)
    texts = [_text(read("before", before)), _text(read("after", after))]
    if texts[0] is None or texts[1] is None:
        return Change(before, after, None, "not text")
    budget.file_comparisons = MAX_FILE_COMPARISONS
    try:
        lines = unified(texts[0], texts[1], budget)
    except TooCostly:
        return Change(before, after, None, TOO_COSTLY)
    return Change(before, after, lines) if budget.show(lines) else Change(before, after, None, FULL)


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


def _hunks(old: list[str], new: list[str], *, skip: int, budget: Budget) -> Iterator[str]:
    for group in _groups(old, new, budget):
        first, last = group[0], group[-1]
        yield f"@@ -{_span(first[1], last[2], skip)} +{_span(first[3], last[4], skip)} @@"
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[old_from:old_to])
            else:
                yield from (f"-{line}" for line in old[old_from:old_to])
                yield from (f"+{line}" for line in new[new_from:new_to])


class _Matcher(SequenceMatcher[str]):
    """Count the work before doing it: each search for the longest match visits all pairs of equal lines in a range."""

    def __init__(self, old: list[str], new: list[str], budget: Budget):
        super().__init__(None, old, new, autojunk=False)
        self.budget = budget
        often = Counter(new)
        self.work = [0, *accumulate(1 + often[line] for line in old)]

    def find_longest_match(self, alo=0, ahi=None, blo=0, bhi=None):  # type: ignore[no-untyped-def]  # as difflib has it
        self.budget.compare(self.work[-1 if ahi is None else ahi] - self.work[alo])
        return super().find_longest_match(alo, ahi, blo, bhi)


def _groups(old: list[str], new: list[str], budget: Budget) -> list[list[tuple[str, int, int, int, int]]]:
    if max(len(old), len(new)) > MAX_CORE_LINES:
        return [[("replace", 0, len(old), 0, len(new))]]  # correct, if not minimal
    matcher = _Matcher(old, new, budget)
    return [list(group) for group in matcher.get_grouped_opcodes(CONTEXT)]


def _span(begin: int, end: int, skip: int) -> str:
    length = end - begin
    return f"{begin + skip + (1 if length else 0)},{length}"
