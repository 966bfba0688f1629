"""A log line as HTML: terminal colours become classes, and web addresses links. The text is escaped like any other."""

import re
from collections.abc import Sequence

from django.utils.html import conditional_escape, format_html_join
from django.utils.safestring import SafeString

from common.text import plain
from jobs.logs.reader import LogLine

_COLOURS = re.compile(r"\x1b\[([0-9;]{0,40})m")  # "select graphic rendition" of ECMA-48, 8.3.117
# Not what ends a sentence or closes a bracket behind it.
_ADDRESS = re.compile(r"""(\bhttps?://[^\s<>"'`\x00-\x1f]{1,500}(?<![.,;:!?)\]}]))""")
_STYLES = {1: "ab", 2: "ad", 3: "ai", 4: "au"}  # bold, dim, italic, underlined
_ENDS = {22: ("ab", "ad"), 23: ("ai",), 24: ("au",)}
_MOST_PIECES = 40  # of one line; what follows keeps the last one's look
MOST_TEXT = 256 * 1024  # characters of all lines of a page; longer ones are cut so that a page stays one
LEAST_LINE = 400  # characters that are never cut


def shortened(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines with the longest ones cut, where all together are too much for a page."""
    most = _longest([len(one.text) for one in lines])
    return [one if len(one.text) <= most else one._replace(text=_cut(one.text, most)) for one in lines]


def _longest(lengths: Sequence[int]) -> int:
    """Return the length to which the longest are cut so that the sum is at most MOST_TEXT."""
    room, left = MOST_TEXT, len(lengths)
    for length in sorted(lengths):
        if length * left > room:
            return max(LEAST_LINE, room // left)
        room, left = room - length, left - 1
    return max(lengths, default=0)


def _cut(text: str, most: int) -> str:
    return f"{text[:most]} … and {len(text) - most:,} more characters, which the log's text has"


def coloured(text: str) -> SafeString:
    """Return a log line with its colours and links; of a redrawn progress bar, its last state."""
    if "\x1b[" not in text:
        return _linked(plain(text))
    first, *rest = _COLOURS.split(text.rstrip("\r").rpartition("\r")[2], maxsplit=_MOST_PIECES)
    pieces, styles, colour = [("", plain(first))], set[str](), ""
    for codes, piece in zip(rest[::2], rest[1::2], strict=True):
        styles, colour = _applied(codes, styles, colour)
        pieces.append((" ".join(sorted({*styles, *([colour] if colour else [])})), plain(piece)))
    return format_html_join("", "{}", ((_piece(look, words),) for look, words in pieces if words))


def _piece(look: str, words: str) -> SafeString:
    return format_html_join("", '<span class="{}">{}</span>', [(look, _linked(words))]) if look else _linked(words)


def _linked(text: str) -> SafeString:
    """Return escaped text whose web addresses are links. The page that opens learns nothing of this one."""
    if "://" not in text:
        return conditional_escape(text)
    first, *rest = _ADDRESS.split(text, maxsplit=_MOST_PIECES)
    pairs = zip(rest[::2], rest[1::2], strict=True)
    link = '<a href="{}" target="_blank" rel="noopener noreferrer nofollow">{}</a>{}'
    return conditional_escape(first) + format_html_join("", link, ((found, found, after) for found, after in pairs))


def _applied(codes: str, styles: set[str], colour: str) -> tuple[set[str], str]:
    """Return styles and colour after one sequence. Backgrounds, and colours beyond the first sixteen, are left out."""
    numbers = [int(one or 0) for one in codes.split(";")]
    while numbers:
        number = numbers.pop(0)
        if number == 0:
            styles, colour = set(), ""
        elif number in _STYLES:
            styles = {*styles, _STYLES[number]}
        elif number in _ENDS:
            styles = styles.difference(_ENDS[number])
        elif 30 <= number <= 37 or 90 <= number <= 97:
            colour = f"a{number % 10}"
        elif number == 39:
            colour = ""
        elif number in (38, 48):  # 5;n of 256 colours, or 2;r;g;b
            skipped = numbers[: 2 if numbers[:1] == [5] else 4]
            del numbers[: len(skipped)]
            if number == 38:
                colour = f"a{skipped[1] % 8}" if skipped[:1] == [5] and len(skipped) > 1 and skipped[1] < 16 else ""
    return styles, colour
