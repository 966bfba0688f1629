"""Split bytes into lines: partial reads, progress bars, and lines without end. Pure."""

from __future__ import annotations

import re

LINE_LIMIT_BYTES = 1 << 20
CUT = "…".encode()  # marks a line that continues in the next one
# tqdm's bar has no newline, and what is printed beside it begins where it ends: "3/10 [00:01<00:05, 3.2it/s]step 3".
_BESIDE_BAR = re.compile(rb"\d{1,12}/\d{1,12} \[[^\]\r]{4,300}\](?=[^\s\]])")
UPDATE_SECONDS = 1.0  # a progress bar becomes a line this often, and an unfinished line for the first time


class Splitter:
    """Split one stream.

    Text before a carriage return is an update of the same line: only the last one becomes a line. An unfinished line is
    shown while it waits for its end, such as a prompt, and again as a whole when it has ended. One that grows is shown
    after twice the time as before: dots that are printed for hours must not fill the log.
    """

    def __init__(self, rest: bytes = b"", shown: bytes = b"") -> None:
        self._rest = rest  # what came after the last newline
        self._shown = shown  # the update that already became a line
        self._since: float | None = None  # when what was not shown yet of an unfinished line began
        self._pause = UPDATE_SECONDS  # from then until it is shown

    def halves(self) -> tuple[bytes, bytes]:
        """Return all state kept between two pieces: another splitter made from it continues here."""
        return self._rest, self._shown

    def feed(self, piece: bytes, *, now: float) -> bytes:
        """Return the lines that `piece` completes, each with its newline. `now` in seconds."""
        at = piece.rfind(b"\n") + 1
        # Most output is plain: whole lines, copied without inspecting each of them.
        if at and len(self._rest) + len(piece) < LINE_LIMIT_BYTES and not (self._shown or self._is_bar(piece)):
            whole, self._rest = self._rest + piece[:at], piece[at:]
            self._since, self._pause = now if self._rest else None, UPDATE_SECONDS
            return whole
        return _text(self._split(piece, now=now))

    def _is_bar(self, piece: bytes) -> bool:
        return b"\r" in piece or b"\r" in self._rest

    def _split(self, piece: bytes, *, now: float) -> list[bytes]:
        whole, newline, self._rest = (self._rest + piece).rpartition(b"\n")
        lines = self._finished(whole) if newline else []
        self._shorten()
        if self._since is None and self._rest:
            self._since = now
        return lines + self._overlong()

    def due(self) -> float | None:
        """Return when `tick` should be called, in seconds; None while nothing is to be shown."""
        return None if self._since is None else self._since + self._pause

    def tick(self, *, now: float) -> bytes:
        """Return the unfinished line as it is now, a progress bar's last state, if that is due."""
        if self._since is None or now < self._since + self._pause:
            return b""
        self._since = None
        if b"\r" not in self._rest:
            self._pause *= 2
        text = _last_update(self._rest)
        if not text or text == self._shown:
            return b""
        self._shown = text
        return _text(_cut(text))

    def end(self) -> bytes:
        """Return what was written without a final newline."""
        text, shown = _last_update(self._rest), self._shown
        self._rest, self._shown, self._since = b"", b"", None
        return _text(_cut(text)) if text and text != shown else b""

    def _finished(self, whole: bytes) -> list[bytes]:
        lines = whole.split(b"\n")
        if b"\r" in whole:
            lines = [part for line in lines for part in _beside_bar(_last_update(line))]
        if self._shown and lines[0] == self._shown:
            del lines[0]
        self._shown, self._since, self._pause = b"", None, UPDATE_SECONDS
        if len(whole) > LINE_LIMIT_BYTES:
            lines = [part for line in lines for part in _cut(line)]
        return lines

    def _shorten(self) -> None:
        # Drop overwritten updates: a bar may run for days without a newline.
        last = self._rest.rstrip(b"\r").rfind(b"\r")
        if last > 0:
            self._rest = self._rest[last:]
        if self._rest.endswith(b"\r\r"):  # they say no more than one does, and would be copied with each piece
            self._rest = self._rest.rstrip(b"\r") + b"\r"

    def _overlong(self) -> list[bytes]:
        if len(self._rest) <= LINE_LIMIT_BYTES:
            return []
        *parts, self._rest = _cut(self._rest)
        return parts


def _text(lines: list[bytes]) -> bytes:
    return b"".join([line + b"\n" for line in lines])


def _last_update(line: bytes) -> bytes:
    """Return what a terminal finally shows: the text after the last carriage return that has any."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _beside_bar(line: bytes) -> list[bytes]:
    """Return what was printed beside a progress bar as a line of its own."""
    found = _BESIDE_BAR.search(line)
    return [line[: found.end()], line[found.end() :]] if found else [line]


def _cut(line: bytes) -> list[bytes]:
    parts = []
    while len(line) > LINE_LIMIT_BYTES:
        at = LINE_LIMIT_BYTES
        while at > LINE_LIMIT_BYTES - 4 and line[at] & 0xC0 == 0x80:  # never inside a UTF-8 character
            at -= 1
        parts.append(line[:at] + CUT)
        line = line[at:]
    return [*parts, line]
